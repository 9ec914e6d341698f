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

// Short histories, at least one for each rule of the model. A model that lacks a rule accepts what breaks the rule.
func TestRules(t *testing.T) {
	one := 1
	act := func(call int64, who, do, result, mode string, token uint64) op {
		ends := call + 1
		return op{Process: who, Op: do, Mode: mode, Call: call, Return: &ends, Result: result, Token: token, Lease: 100}
	}
	grant := func(call int64, who, mode string, token uint64) op {
		return act(call, who, "acquire", "granted", mode, token)
	}
	held := func(call int64, who, mode string, token uint64, until int64) op {
		o := act(call, who, "held", "held", mode, token)
		o.Until = until
		return o
	}
	owned := func(o op) op { o.Owner = o.Process; return o }
	permits := func(o op, entries, limit int) op { o.Entries, o.Limit = entries, limit; return o }
	slot := func(o op) op { o.Slot = &one; return permits(o, 1, 3) }
	for name, test := range map[string]struct {
		lines []op
		good  bool
	}{
		"a lease ends":             {[]op{grant(1, "a", "read", 5), grant(102, "b", "write", 6)}, true},
		"readers share":            {[]op{grant(1, "a", "read", 5), grant(4, "b", "read", 6)}, true},
		"a reader beside a writer": {[]op{grant(1, "a", "write", 5), grant(4, "b", "read", 6)}, false},
		"a writer beside a reader": {[]op{grant(1, "a", "read", 5), grant(4, "b", "write", 6)}, false},
		"a token twice":            {[]op{grant(1, "a", "read", 5), grant(4, "b", "read", 5)}, false},
		"a lower token":            {[]op{grant(1, "a", "read", 5), grant(4, "b", "read", 4)}, false},
		"a stranger releases":      {[]op{grant(1, "a", "write", 5), act(4, "b", "release", "released", "write", 5)}, false},
		"a hold after its end": {[]op{grant(1, "a", "write", 5), act(4, "a", "release", "released", "write", 5),
			held(7, "a", "write", 5, 90)}, false},
		"a loss that is told late": {[]op{grant(1, "a", "write", 5), grant(4, "b", "write", 6),
			act(50, "a", "lost", "lost", "write", 5)}, false},
		"a loss that is told in time": {[]op{grant(1, "a", "write", 5), act(50, "a", "lost", "lost", "write", 5),
			grant(60, "b", "write", 6)}, true},
		"a reader becomes the writer":                         {[]op{owned(grant(1, "a", "read", 5)), owned(grant(4, "a", "write", 6))}, true},
		"a reader becomes the writer with the reader's token": {[]op{owned(grant(1, "a", "read", 5)), owned(grant(4, "a", "write", 5))}, false},
		"an owner enters again":                               {[]op{owned(grant(1, "a", "write", 5)), owned(grant(4, "a", "write", 5))}, true},
		"an owner enters again with another token":            {[]op{owned(grant(1, "a", "write", 5)), owned(grant(4, "a", "write", 6))}, false},
		"as many permits as are left":                         {[]op{permits(grant(1, "a", "permit", 5), 2, 3), permits(grant(4, "b", "permit", 6), 1, 3)}, true},
		"more permits than are left":                          {[]op{permits(grant(1, "a", "permit", 5), 2, 3), permits(grant(4, "b", "permit", 6), 2, 3)}, false},
		"a reader takes one of the permits":                   {[]op{grant(1, "a", "read", 5), permits(grant(4, "b", "permit", 6), 3, 3)}, false},
		"permits beside a reader":                             {[]op{grant(1, "a", "read", 5), permits(grant(4, "b", "permit", 6), 2, 3)}, true},
		"a slot twice":                                        {[]op{slot(grant(1, "a", "permit", 5)), slot(grant(4, "b", "permit", 6))}, false},
	} {
		if is := porcupine.CheckOperations(model, operations(test.lines)); is != test.good {
			t.Errorf("%s: accepted: %v", name, is)
		}
	}
}

func TestTokensRiseOverAllLocksOfAServer(t *testing.T) {
	grant := func(lock string, call, ends int64, token uint64) op {
		return op{Process: lock, Op: "acquire", Lock: lock, Call: call, Return: &ends, Result: "granted", Token: token}
	}
	for name, test := range map[string]struct {
		lines []op
		good  bool
	}{
		"higher":           {[]op{grant("a", 1, 2, 5), grant("b", 3, 4, 6)}, true},
		"the same":         {[]op{grant("a", 1, 2, 5), grant("b", 3, 4, 5)}, false},
		"lower":            {[]op{grant("a", 1, 2, 5), grant("b", 3, 4, 4)}, false},
		"at the same time": {[]op{grant("a", 1, 4, 6), grant("b", 2, 3, 5)}, true},
	} {
		if is := firstLowToken(test.lines) == nil; is != test.good {
			t.Errorf("%s: accepted: %v", name, is)
		}
	}
}

func TestLinesThatTheModelDoesNotKnowAreReported(t *testing.T) {
	at := int64(2)
	good := op{Op: "release", Mode: "read", Return: &at, Result: "released", Token: 5}
	if why := good.invalid(); why != "" {
		t.Fatal(why)
	}
	for name, change := range map[string]func(*op){
		"operation": func(o *op) { o.Op = "cancel" },
		"result":    func(o *op) { o.Result = "canceled" },
		"mode":      func(o *op) { o.Mode = "any" },
		"time":      func(o *op) { o.Return = nil },
		"token":     func(o *op) { o.Token = 0 },
	} {
		o := good
		if change(&o); o.invalid() == "" {
			t.Error(name)
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
	// A process does one thing at a time, and nothing after one whose outcome is not known.
	busy := map[string]bool{}
	for _, event := range events {
		process, kind := strings.Fields(event)[1], strings.Fields(event)[3]
		if busy[process] && kind == ":invoke," {
			t.Fatal(event)
		}
		busy[process] = kind == ":invoke," || kind == ":info,"
	}
}
