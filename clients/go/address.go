package dlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An address says where a server is, who the client is there, and which database it uses. A part that is not understood is
// refused: two programs that read one address differently do not exclude each other.

// parse returns the settings, and the host with its port. Options override the address.
func parse(address string, options []ClientOption) (settings, string, error) {
	s := settings{pool: 16, waiters: 16, session: defaultSession}
	host := strings.TrimSpace(address) // Files and variables have blanks at the ends.
	if strings.Contains(host, "://") {
		parsed, err := url.Parse(host)
		if err != nil || !utf8.ValidString(parsed.Path) || strings.ContainsAny(host, " \t\r\n") {
			return s, "", errNoURL
		}
		var more []ClientOption
		if host, more, err = fromURL(parsed); err != nil {
			return s, "", err
		}
		options = append(more, options...)
	}
	host, err := withPort(host, "6379")
	if err != nil {
		return s, "", err
	}
	for _, option := range options {
		if err := option(&s); err != nil {
			return s, "", err
		}
	}
	_, err = s.terms(nil)
	return s, host, err
}

// errNoURL does not show the address, which may have a password.
var errNoURL = errors.New("dlock: the address is no valid URL")

// withPort returns "host:port". The port is the usual one unless it is given.
func withPort(address, usual string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	isGiven := err == nil
	if !isGiven {
		host, port = address, usual
		if inner, ok := strings.CutPrefix(address, "["); ok {
			if host, ok = strings.CutSuffix(inner, "]"); !ok {
				return "", fmt.Errorf("dlock: the address %q is none", address)
			}
		}
	}
	if host == "" && !isGiven { // ":6379" is this machine, as everywhere in Go.
		return "", errors.New("dlock: the address has no host")
	}
	if strings.ContainsAny(host, "/@?#,[] \t\r\n") || strings.Contains(host, ":") && net.ParseIP(beforeZone(host)) == nil {
		return "", fmt.Errorf("dlock: the host %q is none", host)
	}
	if number, err := digits(port); err != nil || number < 1 || number > 65535 {
		return "", fmt.Errorf("dlock: the port %q is none", port)
	}
	return net.JoinHostPort(host, port), nil
}

// beforeZone returns an IPv6 address without its zone.
func beforeZone(host string) string {
	host, _, _ = strings.Cut(host, "%")
	return host
}

// digits reads a number that has no sign and no blanks.
func digits(text string) (int, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(text)
}

// fromURL returns the host, and what else a URL says.
func fromURL(parsed *url.URL) (string, []ClientOption, error) {
	var options []ClientOption
	database := strings.TrimSuffix(strings.TrimPrefix(parsed.Path, "/"), "/")
	switch parsed.Scheme {
	case "redis", "valkey":
	case "rediss", "valkeys":
		options = append(options, WithTLS(nil))
	case "unix":
		if database == "" || parsed.Host != "" {
			return "", nil, errors.New("dlock: the address has no path of a socket: unix:///run/dlock.sock")
		}
		options, parsed.Host = append(options, WithDialer(unixDialer(parsed.Path))), "localhost"
		database = ""
	default:
		return "", nil, fmt.Errorf("dlock: the scheme %q is none of redis, rediss, valkey, valkeys and unix", parsed.Scheme)
	}
	host := parsed.Host
	if parsed.Opaque != "" || parsed.Fragment != "" || strings.HasPrefix(host, ":") || strings.HasSuffix(host, ":") {
		return "", nil, errNoURL
	}
	if bare := strings.Trim(host, "[]"); strings.Count(bare, ":") > 1 && bare == host {
		return "", nil, errors.New("dlock: an IPv6 address in a URL has brackets")
	}
	query, err := queryOf(parsed)
	if err != nil {
		return "", nil, err
	}
	if given, ok := query["db"]; ok && database != "" && given != database {
		return "", nil, fmt.Errorf("dlock: the address names the databases %q and %q", database, given)
	} else if ok {
		database = given
	}
	if database != "" || query["db"] != "" {
		number, err := digits(database)
		if err != nil {
			return "", nil, fmt.Errorf("dlock: the database %q is no number", database)
		}
		options = append(options, WithDatabase(number))
	}
	login, err := loginOf(parsed.User, query)
	return host, append(options, login...), err
}

// queryOf returns the settings behind the "?", each of which is one that is known.
func queryOf(parsed *url.URL) (map[string]string, error) {
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil || strings.Contains(parsed.RawQuery, "+") { // a blank for some programs, and a plus for others
		return nil, errNoURL
	}
	known := map[string]string{}
	for name, values := range query {
		switch {
		case len(values) != 1:
			return nil, fmt.Errorf("dlock: the address sets %q more than once", name)
		case name != "db" && name != "username" && name != "password":
			return nil, fmt.Errorf("dlock: the setting %q of the address is none of db, username and password", name)
		case values[0] == "" && name == "db" || !utf8.ValidString(values[0]):
			return nil, fmt.Errorf("dlock: the setting %q of the address has no value", name)
		}
		known[name] = values[0]
	}
	return known, nil
}

// loginOf returns who the client is: in front of the host, or in the query.
func loginOf(info *url.Userinfo, query map[string]string) ([]ClientOption, error) {
	user, password := query["username"], query["password"]
	if info != nil && info.String() != "" && info.String() != ":" {
		if user != "" || password != "" {
			return nil, errors.New("dlock: the address names two logins")
		}
		user = info.Username()
		password, _ = info.Password()
	}
	switch {
	case user == "" && password == "":
		return nil, nil
	case !utf8.ValidString(user + password):
		return nil, errNoURL
	}
	return []ClientOption{WithAuth(user, password)}, nil
}

func unixDialer(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
}
