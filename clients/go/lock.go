package dlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Lock is a lock that was granted.
type Lock struct {
	client *Client
	target target
	owner  string
	token  int64
	slot   int
	terms  terms
	// The lock does not end before this time, even if it is released earlier ([WithAtLeast]).
	stays time.Time
	// A copy of the request has no answer. It may be executed after the release.
	isOpen bool

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu sync.Mutex
	// The lease as the lock's commands tell it, and when the next renewal is due.
	lease validity
	beats heartbeat
	// The lease that the next renewal asks for.
	wanted time.Duration
	// Extend has sent a renewal, so the next one may be due earlier.
	extended chan struct{}
	// Ends the lock when its time is over.
	ending *time.Timer
	// Ends the renewals.
	unkeep func()
	// Ends the lock when the work gives no sign of life.
	beat *time.Timer

	// The session on the lock's server, and what it proves about the hold. Both are guarded by sessions.mu.
	home    *home
	binding binding
}

// newLock returns the lock of a grant that counts from `since`. `open`: another copy of its command has no answer.
func newLock(ctx context.Context, c *Client, t target, terms terms, since time.Time, open bool) *Lock {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	now := time.Now()
	l := &Lock{
		client: c, target: t, slot: -1, terms: terms, stays: now.Add(terms.atLeast), ctx: ctx, cancel: cancel,
		lease: newValidity(now, since, terms.lease, open), wanted: terms.lease,
		extended: make(chan struct{}, 1), unkeep: func() {},
	}
	l.beats.ok(&l.lease, now, since)
	return l
}

// Name returns the name of the lock; of several, with blanks between them.
func (l *Lock) Name() string { return l.target.name }

// Token returns the fencing token. It is higher than that of every earlier grant of the server.
func (l *Lock) Token() int64 { return l.token }

// Slot returns the number that was taken with [WithSlot], from 0; -1 without it.
func (l *Lock) Slot() int { return l.slot }

// Owner returns the name under which the server knows the holder. Each acquisition has its own.
func (l *Lock) Owner() string { return l.owner }

// Context returns a context that is canceled when the lock is lost ([context.Cause] is an [ErrLost] then) or released.
// The context has the values of the one that the lock was acquired with, and not its deadline.
func (l *Lock) Context() context.Context { return l.ctx }

// Remaining returns for how long the lock is certainly held if nothing is renewed any more; 0 if it is not held.
func (l *Lock) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return max(0, time.Until(l.certainUntil()))
}

// certainUntil returns until when the lock is certainly held.
func (l *Lock) certainUntil() time.Time {
	if l.client.sessions.seatOf(l) != nil {
		return l.client.sessions.until(l)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.until
}

// err returns why the lock is not held.
func (l *Lock) err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// lose marks the lock as lost and tells the program, unless the lock has ended already.
func (l *Lock) lose(why error) {
	l.mu.Lock()
	if l.lease.state != isHeld {
		l.mu.Unlock()
		return
	}
	l.ends(isLost)
	l.mu.Unlock()
	if !errors.Is(why, ErrLost) {
		why = &failure{ErrLost, l.target.name, why}
	}
	l.cancel(why)
	l.client.forget(l)
	l.client.sessions.removeLost(l)
}

// endWithSession marks the lock as released, because its session ends. Returns false if the lock was not held.
func (l *Lock) endWithSession() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.state != isHeld {
		return false
	}
	l.ends(isReleased)
	l.cancel(&failure{ErrReleased, l.target.name, ErrClosed})
	return true
}

// ends sets the state of the lock, and stops its timers and renewals.
func (l *Lock) ends(s state) {
	l.lease.state = s
	if l.ending != nil {
		l.ending.Stop()
	}
	if l.beat != nil {
		l.beat.Stop()
	}
	l.unkeep()
}

// forget removes the lock from those that Close releases.
func (c *Client) forget(l *Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, l)
}
