// Package goredis lets a client of dlock use the connections of go-redis.
//
//	client, err := dlock.Over(goredis.Connections(rdb))
package goredis

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"github.com/redis/go-redis/v9"
)

// Connections returns the connections of the pool of a client, which may be one that finds its primary through Sentinel.
// Each wait for a lock keeps a connection: PoolSize must have room for them.
//
// The locks are in the database of the client's options, also on a connection on which the program has selected another one.
func Connections(rdb *redis.Client) func(context.Context) (dlock.Conn, error) {
	s := &source{rdb: rdb}
	return func(context.Context) (dlock.Conn, error) { return &conn{source: s}, nil }
}

type source struct {
	rdb *redis.Client
	// The user may not select a database, and so has not selected another one.
	isBound atomic.Bool
}

// conn takes its connection with the first commands: how long go-redis waits for a reply is fixed then.
type conn struct {
	*source
	only *redis.Conn
}

// How much longer go-redis waits for a reply than it is asked to. A connection on which none has come is closed then.
const more = 3 * time.Second

// Do implements [dlock.Conn]. go-redis reads on if ctx ends, until its own time is over, unless the client has the
// option ContextTimeoutEnabled.
func (c *conn) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	if c.only == nil {
		var timeout time.Duration // Zero: the wait has no limit.
		if deadline, ok := ctx.Deadline(); ok {
			timeout = max(0, time.Until(deadline)) + more
		}
		c.only = c.rdb.WithTimeout(timeout).Conn()
	}
	pipe := c.only.Pipeline()
	var selected *redis.StatusCmd
	if !c.isBound.Load() {
		selected = pipe.Select(ctx, c.rdb.Options().DB)
	}
	sent := make([]*redis.Cmd, len(commands))
	for i, words := range commands {
		arguments := make([]any, len(words))
		for j, word := range words {
			arguments[j] = word
		}
		sent[i] = pipe.Do(ctx, arguments...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return nil, err
	}
	if selected != nil && selected.Err() != nil {
		if !redis.HasErrorPrefix(selected.Err(), "NOPERM") {
			return nil, selected.Err()
		}
		c.isBound.Store(true)
	}
	replies := make([]any, len(sent))
	for i, each := range sent {
		reply, err := each.Result()
		switch {
		case errors.Is(err, redis.Nil):
			reply = nil
		case err != nil && !isReply(err):
			return nil, err
		case err != nil:
			reply = err
		}
		replies[i] = reply
	}
	return replies, nil
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// Close implements [dlock.Conn]. go-redis itself closes a connection that has failed.
func (c *conn) Close() error {
	if c.only == nil {
		return nil
	}
	return c.only.Close()
}
