package lending

import (
	"context"
	"fmt"
	"strings"
	"testing"

	dlock "dlock.example/dlock/clients/go"
)

// Spoilable is a client of another library, which uses a database. Spoil selects another database on a connection of
// its pool, and gives the connection back.
type Spoilable struct {
	Open  func(context.Context) (dlock.Conn, error)
	Spoil func(database int)
	End   func()
}

// TestDatabase tests that locks are in the database of the other client, whatever a program has done to a connection of its
// pool. A lock is acquired at once, acquired after a wait, extended and released, each time after such a change.
func TestDatabase(t *testing.T, client func(address string, database int) Spoilable) {
	for _, database := range []int{0, 3} {
		t.Run(fmt.Sprint(database), func(t *testing.T) {
			s := startServer(t)
			other := client(s.address, database)
			t.Cleanup(other.End)
			locks, err := dlock.Over(other.Open, dlock.WithSession(session))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { locks.Close() })
			isIn := func(what string, wanted int) {
				t.Helper()
				keys := s.ask("INFO keyspace")
				for number := range 8 {
					if strings.Contains(keys, fmt.Sprintf("db%d:", number)) != (number == wanted) {
						t.Errorf("%s: not in database %d alone: %s", what, wanted, keys)
						return
					}
				}
			}
			other.Spoil(6)
			held := lock(t, locks, "job")
			isIn("a free lock", database)
			other.Spoil(6)
			granted := make(chan *dlock.Lock)
			go func() { granted <- lock(t, locks, "job") }()
			s.waiters(1)
			other.Spoil(5)
			unlock(t, held)
			next := <-granted
			isIn("after a wait", database)
			other.Spoil(6)
			if err := next.Extend(context.Background(), 0); err != nil {
				t.Errorf("extend: %v", err)
			}
			other.Spoil(6)
			unlock(t, next)
			isIn("after the release", -1)
		})
	}
}
