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
			MaxIdle: 8, MaxActive: 40, Wait: true,
			DialContext: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", address, redis.DialReadTimeout(time.Second))
			},
		}
		return redigo.Connections(pool), func() { pool.Close() }
	})
}
