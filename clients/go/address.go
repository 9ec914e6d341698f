package dlock

import (
	"context"
	"errors"
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

// Errors show no part of an address: any may be a piece of a password that is not escaped.
var (
	errNoURL     = errors.New("dlock: the address is no valid URL (in a password, ? is %3F, & is %26, / is %2F, [ is %5B)")
	errNoAddress = errors.New("dlock: an address is host, host:port, [IPv6]:port or the URL of one server")
)

// withPort returns "host:port". The port is the usual one unless it is given.
func withPort(address, usual string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	isGiven := err == nil
	if !isGiven {
		host, port = address, usual
		if inner, ok := strings.CutPrefix(address, "["); ok {
			if host, ok = strings.CutSuffix(inner, "]"); !ok {
				return "", errNoAddress
			}
		}
	}
	if host == "" && !isGiven { // ":6379" is this machine, as everywhere in Go.
		return "", errors.New("dlock: the address has no host")
	}
	if strings.ContainsAny(host, "/@?#,[] \t\r\n") || strings.Contains(host, ":") && net.ParseIP(beforeZone(host)) == nil {
		return "", errNoAddress
	}
	if number, err := digits(port); err != nil || number < 1 || number > 65535 {
		return "", errors.New("dlock: the port of the address is no number from 1 to 65535")
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
		return "", nil, errors.New("dlock: the scheme of the address is none of redis, rediss, valkey, valkeys and unix")
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
		return "", nil, errors.New("dlock: the address names two databases")
	} else if ok {
		database = given
	}
	if database != "" || query["db"] != "" {
		number, err := digits(database)
		if err != nil {
			return "", nil, errors.New("dlock: the database of the address is no number (in a password, / is %2F)")
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
			return nil, errors.New("dlock: the address has a setting more than once")
		case name != "db" && name != "username" && name != "password":
			return nil, errors.New("dlock: the address has a setting other than db, username and password (where ? is %3F)")
		case values[0] == "" && name == "db" || !utf8.ValidString(values[0]):
			return nil, errors.New("dlock: a setting of the address has no value, or one that is not UTF-8")
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
