package goredis_test

import (
	"context"
	"testing"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/goredis"
	"dlock.example/dlock/clients/go/internal/lending"
	"github.com/redis/go-redis/v9"
)

func TestOverGoRedis(t *testing.T) {
	for name, protocol := range map[string]int{"RESP2": 2, "RESP3": 3} {
		t.Run(name, func(t *testing.T) {
			lending.Test(t, func(address string) (func(context.Context) (dlock.Conn, error), func()) {
				rdb := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, PoolSize: 40})
				return goredis.Connections(rdb), func() { rdb.Close() }
			})
		})
	}
}

func TestLocksAreInTheDatabaseOfTheClient(t *testing.T) {
	lending.TestDatabase(t, func(address string, database int) lending.Spoilable {
		rdb := redis.NewClient(&redis.Options{Addr: address, DB: database, PoolSize: 40})
		// Leaves a connection in the pool that is in another database.
		spoil := func(number int) {
			c := rdb.Conn()
			defer c.Close()
			if err := c.Select(context.Background(), number).Err(); err != nil {
				t.Error(err)
			}
		}
		return lending.Spoilable{Open: goredis.Connections(rdb), Spoil: spoil, End: func() { rdb.Close() }}
	})
}
