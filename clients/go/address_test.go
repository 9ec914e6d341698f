package dlock

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// What each form of an address means: host, user, password, database, and whether it is encrypted or a socket.
var addresses = map[string]string{
	"server":                         "server:6379 - - 0",
	"server:6380":                    "server:6380 - - 0",
	"127.0.0.1":                      "127.0.0.1:6379 - - 0",
	":6380":                          ":6380 - - 0",
	"redis://:6380/1":                ":6380 - - 1",
	"::1":                            "[::1]:6379 - - 0",
	"[::1]":                          "[::1]:6379 - - 0",
	"[::1]:6380":                     "[::1]:6380 - - 0",
	"redis://server":                 "server:6379 - - 0",
	"redis://server/":                "server:6379 - - 0",
	"redis://server:6380/2":          "server:6380 - - 2",
	"redis://server/2/":              "server:6379 - - 2",
	"redis://server?db=2":            "server:6379 - - 2",
	"redis://server/?db=2":           "server:6379 - - 2",
	"redis://server/1?db=2":          "server:6379 - - 2",
	"redis://server/1?db=0":          "server:6379 - - 0",
	"REDIS://server?db=2":            "server:6379 - - 2",
	"Rediss://server":                "server:6379 - - 0 TLS",
	"rediss://server:6380/3":         "server:6380 - - 3 TLS",
	"valkey://server/4":              "server:6379 - - 4",
	"valkeys://server":               "server:6379 - - 0 TLS",
	"redis://[::1]:6380/1":           "[::1]:6380 - - 1",
	"redis://:secret@server":         "server:6379 - secret 0",
	"redis://worker:secret@server/1": "server:6379 worker secret 1",
	"redis://worker@server":          "server:6379 worker - 0",
	"redis://w%40x:s%2F%3Ac@server":  "server:6379 w@x s/:c 0",
	"redis://server?password=secret": "server:6379 - secret 0",
	"redis://server?username=a&password=b&db=7":          "server:6379 a b 7",
	"redis://worker:secret@server?username=a&password=b": "server:6379 worker secret 0",
	"unix:///run/dlock.sock":                             "localhost:6379 - - 0 /run/dlock.sock",
	"unix:///run/dlock.sock?db=3":                        "localhost:6379 - - 3 /run/dlock.sock",
	"unix://:secret@/run/dlock.sock?db=3":                "localhost:6379 - secret 3 /run/dlock.sock",
	"UNIX:///run/2?password=p":                           "localhost:6379 - p 0 /run/2",
}

var noAddresses = []string{
	"", "redis://", "redis:///2", "http://server", "server:port", "server:0", "server:65536", "server:-1",
	"redis://server:65536", "redis://server:port", "server ", " server", "server/2", "user@server", "redis:server",
	"redis://server ", "redis://server/x", "redis://server/-1", "redis://server/+2", "redis://server/ 2", "redis://server/2/3",
	"redis://server/2?x=1", "redis://server?database=2", "redis://server?db=x", "redis://server?db=-1", "redis://server?db=",
	"redis://server?db=2&db=3", "redis://server?DB=2", "redis://server?socket_timeout=5", "rediss://server?ssl_cert_reqs=none",
	"redis://server?db=2;x=1", "redis://server#2", "redis://server?db=%zz", "redis://one,two", "[::1", "a:b:c",
	"unix://", "unix://run/dlock.sock", "unix:///run/dlock.sock?path=x", "redis://server?protocol=3",
}

// understood returns what a client does with an address.
func understood(address string) (string, error) {
	s, host, err := parse(address, nil)
	if err != nil {
		return "", err
	}
	or := func(text string) string {
		if text == "" {
			return "-"
		}
		return text
	}
	text := fmt.Sprintf("%s %s %s %d", host, or(s.access.user), or(s.access.password), s.access.database)
	if s.access.tls != nil {
		text += " TLS"
	}
	if s.access.dial != nil {
		if _, err := s.access.dial(context.Background(), "", ""); err != nil {
			text += " " + err.(*net.OpError).Addr.String()
		}
	}
	return text, nil
}

func TestAddressesAreUnderstoodOrRefused(t *testing.T) {
	for address, meaning := range addresses {
		if got, err := understood(address); err != nil || got != meaning {
			t.Errorf("%q is %q, and not %q: %v", address, got, meaning, err)
		}
	}
	for _, address := range noAddresses {
		if got, err := understood(address); err == nil {
			t.Errorf("%q is %q", address, got)
		}
	}
	for _, address := range []string{"redis://server:26379", "server/2", "", "server:x"} {
		if _, err := NewSentinel("locks", []string{address}); err == nil {
			t.Errorf("a Sentinel is at %q", address)
		}
		if _, err := NewCluster([]string{address}); err == nil {
			t.Errorf("a node is at %q", address)
		}
	}
}
