package dlock

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

// meaningOf returns what an error means that is the reply to a command.
func meaningOf(e ServerError) string {
	switch {
	case e.mayRepeat() && e.isOpen():
		return "open"
	case e.mayRepeat():
		return "elsewhere"
	case writesNothing(e):
		return "paused"
	case isOverwritten(e):
		return "foreign"
	case isNoSession(e):
		return "session"
	case errors.Is(e, ErrDeadlock):
		return "deadlock"
	case errors.Is(e, ErrNoModule):
		return "module"
	}
	return "final"
}

// The table that all packages share.
func TestRepliesMeanWhatTheTableSays(t *testing.T) {
	text, err := os.ReadFile("../../tests/clients/tables/replies.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for number, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		quoted, meaning, _ := strings.Cut(line, " => ")
		reply, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("line %d: %v", number+1, err)
		}
		rows++
		if got := meaningOf(ServerError(reply)); got != meaning {
			t.Errorf("line %d: %s means %s, not %s", number+1, reply, got, meaning)
		}
	}
	if rows < 20 {
		t.Fatalf("only %d rows", rows)
	}
}
