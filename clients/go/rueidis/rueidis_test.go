package rueidis_test

import (
	"context"
	"strconv"
	"testing"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/lending"
	adapter "dlock.example/dlock/clients/go/rueidis"
	"github.com/redis/rueidis"
)

// client opens a client with one connection for commands that do not wait, and up to 40 for those that do.
func client(t *testing.T, address string, database int) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, SelectDB: database, BlockingPoolSize: 40, ForceSingleClient: true, DisableCache: true,
		PipelineMultiplex: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOverRueidis(t *testing.T) {
	lending.Test(t, func(address string) (func(context.Context) (dlock.Conn, error), func()) {
		c := client(t, address, 0)
		return adapter.Connections(c, 0), c.Close
	})
}

func TestLocksAreInTheDatabaseOfTheClient(t *testing.T) {
	lending.TestDatabase(t, func(address string, database int) lending.Spoilable {
		c := client(t, address, database)
		// A dedicated client takes a connection of the pool, which comes back to the pool in the other database.
		spoil := func(number int) {
			err := c.Dedicated(func(d rueidis.DedicatedClient) error {
				return d.Do(context.Background(), d.B().Arbitrary("SELECT", strconv.Itoa(number)).Build()).Error()
			})
			if err != nil {
				t.Error(err)
			}
		}
		return lending.Spoilable{Open: adapter.Connections(c, database), Spoil: spoil, End: c.Close}
	})
}
