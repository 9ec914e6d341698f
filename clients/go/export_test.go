package dlock

import (
	"context"
	"time"
)

// Wired returns a function for [Over] that connects to a server directly, in place of a client that lends connections.
func Wired(address string) func(context.Context) (Conn, error) {
	return func(ctx context.Context) (Conn, error) {
		c, err := (&profile{}).connect(ctx, address, time.Now().Add(step))
		return wired{c}, err
	}
}

// wired is a connection of this package in the form of a lent one.
type wired struct{ *conn }

func (w wired) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	until, _ := ctx.Deadline()
	each := make([]command, len(commands))
	for i, words := range commands {
		each[i] = words
	}
	return w.exchange(ctx, until, nil, each...)
}

func (w wired) Close() error {
	w.close()
	return nil
}

// EndsUnnoticed ends the lease, and stops the timers that would notice it, as in a program that is paused.
func (l *Lock) EndsUnnoticed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unkeep()
	l.ending.Stop()
	l.lease.until = time.Now()
}
