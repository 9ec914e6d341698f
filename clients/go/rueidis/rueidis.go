// Package rueidis lets a client of dlock use the connections of rueidis.
//
//	client, err := dlock.Over(rueidis.Connections(other, option.SelectDB))
package rueidis

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	dlock "dlock.example/dlock/clients/go"
	"github.com/redis/rueidis"
)

// Connections returns dedicated connections of a client for one server, or with Sentinel. Each wait for a lock keeps
// one: BlockingPoolSize must have room for them.
//
// The locks are in this database, which is SelectDB of the client's options, even on a connection on which the program
// has selected another one.
func Connections(client rueidis.Client, database int) func(context.Context) (dlock.Conn, error) {
	s := &source{client: client, database: strconv.Itoa(database)}
	return func(context.Context) (dlock.Conn, error) {
		dedicated, giveBack := client.Dedicate()
		return &conn{source: s, only: dedicated, giveBack: giveBack}, nil
	}
}

type source struct {
	client   rueidis.Client
	database string
	// The server has refused SELECT to the user, whose connections therefore stay in the database of the options.
	isBound atomic.Bool
}

type conn struct {
	*source
	only     rueidis.DedicatedClient
	giveBack func()
	// A reply may be left unread.
	failed bool
}

// Do implements [dlock.Conn].
func (c *conn) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	selects := !c.isBound.Load()
	if selects {
		commands = append([][]string{{"SELECT", c.database}}, commands...)
	}
	built := make([]rueidis.Completed, len(commands))
	for i, words := range commands {
		built[i] = c.only.B().Arbitrary(words...).Blocking()
	}
	replies := make([]any, len(commands))
	for i, result := range c.only.DoMulti(ctx, built...) {
		reply, err := result.ToAny()
		if result.NonRedisError() != nil {
			c.failed = true
			return nil, err
		}
		if err != nil && !rueidis.IsRedisNil(err) {
			reply = err
		}
		replies[i] = reply
	}
	if !selects {
		return replies, nil
	}
	if answer, isError := replies[0].(error); isError {
		var said *rueidis.RedisError
		if !errors.As(answer, &said) || !isRefused(said) {
			c.failed = true
			return nil, answer
		}
		c.isBound.Store(true)
	}
	return replies[1:], nil
}

// isRefused returns whether the server denies the command to the user.
func isRefused(answer *rueidis.RedisError) bool {
	text := answer.Error()
	return len(text) > 7 && text[:7] == "NOPERM "
}

// Close implements [dlock.Conn]. The connection goes back to the client, or is closed if a reply may be left unread.
func (c *conn) Close() error {
	if c.failed {
		c.only.Close()
	}
	c.giveBack()
	return nil
}
