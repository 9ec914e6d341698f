package dlock

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Addresses without a scheme, and the result of `understood` for each.
var addresses = map[string]string{
	"server":         "server:6379 db=0",
	" server:6380\n": "server:6380 db=0",
	"127.0.0.1":      "127.0.0.1:6379 db=0",
	":6380":          ":6380 db=0",
	"::1":            "[::1]:6379 db=0",
	"[::1]":          "[::1]:6379 db=0",
	"[::1]:6380":     "[::1]:6380 db=0",
}

var noAddresses = []string{
	"", "server:port", "server:0", "server:65536", "server:-1", "server:", "two words", "server/2", "user@server", "one,two",
	"[::1", "a:b:c", "redis-sentinel://a/main", "redis://a,b", "redis+unix:///run/dlock.sock",
}

// understood returns the host, the login and the database that a client takes from an address.
func understood(address string) (string, error) {
	s, host, err := parse(address, nil)
	if err != nil {
		return "", err
	}
	if dial := s.profile.dial; dial != nil {
		// Nobody listens on the Unix socket, so the error names its path.
		_, err := dial(context.Background(), "", "")
		host = err.(*net.OpError).Addr.String()
	}
	text := host
	if s.profile.tls != nil {
		text += " tls"
	}
	if s.profile.user != "" {
		text += " user=" + s.profile.user
	}
	if s.profile.user != "" || s.profile.password != "" {
		text += " password=" + s.profile.password
	}
	return fmt.Sprintf("%s db=%d", text, s.profile.database), nil
}

// The table that all packages share.
func TestURLsMeanWhatTheTableSays(t *testing.T) {
	text, err := os.ReadFile("../../tests/clients/tables/urls.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for number, line := range strings.Split(string(text), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		quoted, meaning, isRow := strings.Cut(rest, " => ")
		if !isRow || kind != "server" && kind != "socket" {
			continue
		}
		address, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("line %d: %v", number+1, err)
		}
		if !strings.Contains(address, "://") {
			continue // A host is an address here.
		}
		rows++
		got, err := understood(address)
		if err != nil {
			got = "refused"
		}
		if got != meaning {
			t.Errorf("%q is %q, and not %q: %v", address, got, meaning, err)
		}
	}
	if rows < 100 {
		t.Errorf("only %d rows", rows)
	}
}

func TestAnErrorDoesNotTellThePassword(t *testing.T) {
	for _, address := range []string{
		"redis://u:pa?s3cret@host", "redis://h?password=a&s3cret", "redis://u:pa?s3c=ret@h", "redis://u:[s3cret/x@h",
		"redis://u:12?s3cret@host", "redis://u:12?s3c=ret@h", "redis://u:12/s3cret@h", "redis://u:12/s3cret@h?db=1",
		"redis://h?password=a&s3cret=1&s3cret=2", "redis://u:12?db=s3cret@h", "redis://u:p%zzs3cret@h", "u:s3cret@h",
		"u:s3cret@h:1", "[s3cret@h", "redis://u@[::1%25s3cret@h",
	} {
		_, _, err := parse(address, nil)
		if err == nil || strings.Contains(err.Error(), "s3c") {
			t.Errorf("%q: %v", address, err)
		}
	}
	_, err := NewCluster([]string{"redis://u:s3cret@h:6379"})
	if err == nil || strings.Contains(err.Error(), "s3c") {
		t.Error(err)
	}
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
