// Package redigo lets a client of dlock use the connections of redigo.
//
//	client, err := dlock.Over(redigo.Connections(pool))
package redigo

import (
	"context"
	"errors"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"github.com/gomodule/redigo/redis"
)

// Connections returns the connections of a pool. Each wait for a lock keeps one: MaxActive must have room for them, if it
// is set.
func Connections(pool *redis.Pool) func(context.Context) (dlock.Conn, error) {
	return func(ctx context.Context) (dlock.Conn, error) {
		c, err := pool.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		return conn{c}, nil
	}
}

type conn struct{ redis.Conn }

// Do implements [dlock.Conn]. The read timeout of redigo does not count: a wait may take longer.
func (c conn) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end(c.Conn)
	})
	replies, err := c.exchange(commands)
	if !stop() {
		<-ended
		return nil, ctx.Err()
	}
	return replies, err
}

func (c conn) exchange(commands [][]string) ([]any, error) {
	for _, words := range commands {
		arguments := make([]any, len(words)-1)
		for i, word := range words[1:] {
			arguments[i] = word
		}
		if err := c.Send(words[0], arguments...); err != nil {
			return nil, err
		}
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	replies := make([]any, len(commands))
	for i := range replies {
		reply, err := redis.ReceiveWithTimeout(c.Conn, 0)
		var answer redis.Error
		switch {
		case errors.As(err, &answer):
			reply = answer
		case err != nil:
			return nil, err
		}
		replies[i] = reply
	}
	return replies, nil
}

// end closes a connection, also while a reply is awaited: redigo does this if the time for one has passed before.
func end(c redis.Conn) {
	over, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	redis.ReceiveContext(c, over)
}
