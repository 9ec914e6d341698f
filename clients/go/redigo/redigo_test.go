package redigo_test

import (
	"context"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/lending"
	"dlock.example/dlock/clients/go/redigo"
	"github.com/gomodule/redigo/redis"
)

func TestOverRedigo(t *testing.T) {
	lending.Test(t, func(address string) (func(context.Context) (dlock.Conn, error), func()) {
		pool := &redis.Pool{
			// Fewer connections than the crowd of the tests has goroutines, 100.
			MaxIdle: 8, MaxActive: 40, Wait: true,
			DialContext: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", address, redis.DialReadTimeout(time.Second))
			},
		}
		return redigo.Connections(pool), func() { pool.Close() }
	})
}

func TestLocksAreInTheDatabaseOfTheClient(t *testing.T) {
	lending.TestDatabase(t, func(address string, database int) lending.Spoilable {
		pool := &redis.Pool{MaxIdle: 40, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", address, redis.DialDatabase(database))
		}}
		// A program changes the database of a connection and gives the connection back to the pool.
		spoil := func(number int) {
			c := pool.Get()
			defer c.Close()
			if _, err := c.Do("SELECT", number); err != nil {
				t.Error(err)
			}
		}
		return lending.Spoilable{Open: redigo.Connections(pool), Spoil: spoil, End: func() { pool.Close() }}
	})
}
