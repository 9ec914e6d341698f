package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// Histories of real runs are explained, and the same with a planted fault are not: an exclusive lock that is granted
// twice, a token that goes back, a hold that two releases end, a hold that is over before its time.
func TestHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		lines, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		good := strings.HasPrefix(filepath.Base(file), "good")
		if is := check(file, lines) == 0; is != good {
			t.Errorf("%s: accepted: %v", file, is)
		}
	}
}

func TestOwnersEnterAgainAndPermitsAreCounted(t *testing.T) {
	at := func(time int64) *int64 { return &time }
	grant := func(time int64, owner, mode string, token uint64, entries, limit int) op {
		return op{Process: owner, Op: "acquire", Owner: owner, Mode: mode, Call: time, Return: at(time), Result: "granted",
			Token: token, Lease: 100, Entries: entries, Limit: limit}
	}
	for name, test := range map[string]struct {
		lines []op
		good  bool
	}{
		"a reader becomes the writer": {[]op{grant(1, "a", "read", 5, 0, 0), grant(2, "a", "write", 5, 0, 0)}, true},
		"another one does not":        {[]op{grant(1, "a", "read", 5, 0, 0), grant(2, "b", "write", 6, 0, 0)}, false},
		"a lease ends":                {[]op{grant(1, "a", "read", 5, 0, 0), grant(102, "b", "write", 6, 0, 0)}, true},
		"readers share":               {[]op{grant(1, "a", "read", 5, 0, 0), grant(2, "b", "read", 6, 0, 0)}, true},
		"permits are left":            {[]op{grant(1, "a", "permit", 5, 2, 3), grant(2, "b", "permit", 6, 1, 3)}, true},
		"permits are not left":        {[]op{grant(1, "a", "permit", 5, 2, 3), grant(2, "b", "permit", 6, 2, 3)}, false},
		"a token is given twice":      {[]op{grant(1, "a", "read", 5, 0, 0), grant(2, "b", "read", 5, 0, 0)}, false},
	} {
		if is := porcupine.CheckOperations(model, operations(test.lines)); is != test.good {
			t.Errorf("%s: accepted: %v", name, is)
		}
	}
}

func TestEDN(t *testing.T) {
	lines, err := read("testdata/good-clients.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	writeEDN(&text, lines)
	events := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(events) != 2*len(lines) || !strings.HasPrefix(events[0], "{:process 0, :type :invoke, :f :acquire, :value [") {
		t.Errorf("%d lines, %d events, the first is %s", len(lines), len(events), events[0])
	}
}
