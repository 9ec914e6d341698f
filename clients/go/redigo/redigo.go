// Package redigo lets a client of dlock use the connections of redigo.
//
//	client, err := dlock.Over(redigo.Connections(pool))
package redigo

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"github.com/gomodule/redigo/redis"
)

// Connections returns the connections of a pool. Each wait for a lock keeps one: MaxActive must have room for them, if it
// is set.
//
// The locks are in the database that new connections of the pool use, even if the program has selected another one on a
// connection before. To learn that database, the first use makes a connection, and asks CLIENT INFO. If the server
// refuses CLIENT INFO, give back no connection on which you have selected another database.
func Connections(pool *redis.Pool) func(context.Context) (dlock.Conn, error) {
	s := &source{pool: pool}
	return func(ctx context.Context) (dlock.Conn, error) {
		database, err := s.database(ctx)
		if err != nil {
			return nil, err
		}
		c, err := pool.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		return conn{c, s, database}, nil
	}
}

type source struct {
	pool  *redis.Pool
	mu    sync.Mutex
	known bool
	name  string
}

// database returns the database of new connections. Empty: it cannot be known.
func (s *source) database(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return s.name, nil
	}
	c, err := s.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	info, err := redis.String(redis.DoContext(c, ctx, "CLIENT", "INFO"))
	var answer redis.Error
	if err != nil && !errors.As(err, &answer) {
		return "", err
	}
	for _, word := range strings.Fields(info) {
		if number, ok := strings.CutPrefix(word, "db="); ok {
			s.name = number
		}
	}
	s.known = true
	return s.name, nil
}

func (s *source) dial(ctx context.Context) (redis.Conn, error) {
	if s.pool.DialContext != nil {
		return s.pool.DialContext(ctx)
	}
	return s.pool.Dial()
}

// cannotSelect notes that the user may not select a database, and so has not selected another one.
func (s *source) cannotSelect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = ""
}

type conn struct {
	redis.Conn
	source   *source
	database string
}

// Do implements [dlock.Conn]. The read timeout of redigo does not count: a wait may take longer.
func (c conn) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end(c.Conn)
	})
	if c.database != "" {
		commands = append([][]string{{"SELECT", c.database}}, commands...)
	}
	replies, err := c.exchange(commands)
	if !stop() {
		<-ended
		return nil, ctx.Err()
	}
	if err == nil && c.database != "" {
		if answer, isError := replies[0].(redis.Error); isError {
			if !strings.HasPrefix(string(answer), "NOPERM") {
				return nil, answer
			}
			c.source.cannotSelect()
		}
		replies = replies[1:]
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

// end closes a connection, even while a reply is awaited: redigo closes it if the deadline of a receive has passed
// before the receive begins.
func end(c redis.Conn) {
	over, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	redis.ReceiveContext(c, over)
}
