package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Locker is a lock with the methods of [sync.Locker]. [Client.Locker] makes it.
type Locker struct {
	client  *Client
	ctx     context.Context
	name    string
	options []Option

	mu sync.Mutex
	// The locks whose Unlock is still to come: more than one if the first was lost meanwhile.
	held []*Lock
}

var _ sync.Locker = (*Locker)(nil)

// Locker returns a lock for code that wants a [sync.Locker], which knows no errors: its methods panic with the error
// instead. The context limits each Lock. Use [Client.Lock] where you can.
func (c *Client) Locker(ctx context.Context, name string, options ...Option) *Locker {
	return &Locker{client: c, ctx: ctx, name: name, options: options}
}

// Lock waits for the lock. It panics if the lock is not granted.
func (l *Locker) Lock() {
	lock, err := l.client.Lock(l.ctx, l.name, l.options...)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	l.held = append(l.held, lock)
	l.mu.Unlock()
}

// Unlock releases the lock. It panics if the lock is not held, or was lost. If no server answers, it returns: the lock is
// released, or ends with its lease. A panic that a deferred Unlock meets goes on, even if the release fails.
func (l *Locker) Unlock() {
	if reason := recover(); reason != nil {
		if lock := l.take(); lock != nil {
			lock.Unlock(context.WithoutCancel(l.ctx))
		}
		panic(reason)
	}
	lock := l.take()
	if lock == nil {
		panic(fmt.Errorf("dlock: %s: unlock of a lock that is not held", l.name))
	}
	if err := lock.Unlock(context.WithoutCancel(l.ctx)); err != nil && !errors.Is(err, ErrUnreachable) {
		panic(err)
	}
}

// Held returns the lock that is held now, with its token and its context. Nil: none is.
func (l *Locker) Held() *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		return nil
	}
	return l.held[len(l.held)-1]
}

// take returns the lock that was granted first: whoever lost it must not release the one that came after it.
func (l *Locker) take() *Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		return nil
	}
	lock := l.held[0]
	l.held = slices.Delete(l.held, 0, 1)
	return lock
}
