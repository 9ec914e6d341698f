package dlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// An address says where a server is, who the client is there, and which database it uses. Whatever is not understood is
// refused: two programs that read one address differently do not exclude each other.

// parse returns the settings, and the host with its port. Options override the address.
func parse(address string, options []ClientOption) (settings, string, error) {
	s := settings{pool: 16, waiters: 16, session: defaultSession}
	host := address
	if strings.Contains(address, "://") {
		parsed, err := url.Parse(address)
		if err != nil {
			return s, "", errors.New("dlock: the address is no valid URL") // Its text may have a password.
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
	path := strings.TrimSuffix(strings.TrimPrefix(parsed.Path, "/"), "/")
	switch parsed.Scheme {
	case "redis", "valkey":
	case "rediss", "valkeys":
		options = append(options, WithTLS(nil))
	case "unix":
		if parsed.Path == "" || parsed.Host != "" {
			return "", nil, errors.New("dlock: the address has no path of a socket: unix:///run/dlock.sock")
		}
		options, parsed.Host = append(options, WithDialer(unixDialer(parsed.Path))), "localhost"
		path = ""
	default:
		return "", nil, fmt.Errorf("dlock: the scheme %q is none of redis, rediss, valkey, valkeys and unix", parsed.Scheme)
	}
	if parsed.Opaque != "" || parsed.Fragment != "" {
		return "", nil, errors.New("dlock: the address is no valid URL")
	}
	if path != "" {
		number, err := digits(path)
		if err != nil {
			return "", nil, fmt.Errorf("dlock: the database %q is no number", path)
		}
		options = append(options, WithDatabase(number))
	}
	more, err := fromQuery(parsed)
	return parsed.Host, append(options, more...), err
}

// fromQuery returns what the part behind the "?" says, as redis-py reads it, and the user. A database there overrides the
// one in the path, and a user in front of the host the one in the query.
func fromQuery(parsed *url.URL) ([]ClientOption, error) {
	var options []ClientOption
	var user, password string
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, errors.New("dlock: the address is no valid URL")
	}
	for name, values := range query {
		if len(values) != 1 {
			return nil, fmt.Errorf("dlock: the address sets %q more than once", name)
		}
		switch name {
		case "db":
			number, err := digits(values[0])
			if err != nil || values[0] == "" {
				return nil, fmt.Errorf("dlock: the database %q is no number", values[0])
			}
			options = append(options, WithDatabase(number))
		case "username":
			user = values[0]
		case "password":
			password = values[0]
		default:
			return nil, fmt.Errorf("dlock: the setting %q of the address is none of db, username and password", name)
		}
	}
	if parsed.User != nil {
		if name := parsed.User.Username(); name != "" {
			user = name
		}
		if secret, ok := parsed.User.Password(); ok {
			password = secret
		}
	}
	if user != "" || password != "" {
		options = append(options, WithAuth(user, password))
	}
	return options, nil
}

func unixDialer(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
}
