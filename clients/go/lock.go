package dlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	// It stays until then.
	stays time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu sync.Mutex
	// Held until then for certain.
	until  time.Time
	length lengths
	// Its length has changed: the next renewal may be due earlier.
	extended chan struct{}
	state    state
	// Ends the lock when the time is over.
	ending *time.Timer
	// Ends the renewals.
	unkeep func()
	// Ends the lock when the work gives no sign of life.
	beat *time.Timer

	// The session that keeps it, guarded by sessions.mu. The last proof that it was held was sent at `proved`, or with
	// the last heartbeat if the lock is bound.
	home   *home
	bound  bool
	proved time.Time
	// A cap ends it then, whatever renews it. Until isKnown, this is the earliest that a cap can be.
	cap   time.Time
	known bool
}

type state int

const (
	isHeld state = iota
	isLost
	isReleased
)

func newLock(a *attempt, g *grant) *Lock {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	length := lengths{wanted: a.terms.lease, sure: a.terms.lease}
	if a.isRenewalOpen {
		length.sends(a.terms.lease)
	}
	return &Lock{
		client: a.client, target: a.target, owner: a.owner, token: g.token, slot: g.slot, terms: a.terms,
		length: length, extended: make(chan struct{}, 1),
		stays: time.Now().Add(a.terms.atLeast),
		ctx:   ctx, cancel: cancel, until: endOf(g.sent, a.terms.lease), proved: g.sent,
		unkeep: func() {},
	}
}

// endOf returns until when a lock is held for certain that was granted or renewed by a command that was sent then. The
// server counts in whole milliseconds, so a lease may be that much shorter.
func endOf(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - 2*time.Millisecond)
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
// It has the values of the context that the lock was acquired with, and not its deadline.
func (l *Lock) Context() context.Context { return l.ctx }

// Remaining returns for how long the lock is held for certain if nothing is renewed any more; 0 if it is not held.
func (l *Lock) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return max(0, time.Until(l.certainUntil()))
}

// certainUntil returns until when the lock is held for certain.
func (l *Lock) certainUntil() time.Time {
	if b := l.client.sessions.bindingOf(l); b != nil {
		return l.client.sessions.until(l)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// keep begins to watch the lease, and to renew it. It fails if the client is closed.
func (l *Lock) keep() error {
	c := l.client
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.held[l] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		l.lose(ErrClosed)
		return &failure{ErrClosed, l.target.name, nil}
	}
	if l.err() != nil {
		c.forget(l) // Its session has lost it before.
	}
	if c.sessions.bindingOf(l) != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = time.AfterFunc(time.Until(l.until), l.checkEnd)
	if l.terms.beat > 0 {
		l.beat = time.AfterFunc(l.terms.beat, func() {
			l.lose(fmt.Errorf("its work has given no sign of life for %v", l.terms.beat))
		})
	}
	if l.terms.fixed {
		return nil
	}
	ctx, stop := context.WithCancel(c.ctx)
	l.unkeep = stop
	c.behind(func() { l.renewAlways(ctx) })
	return nil
}

// Beat is the sign of life of the work that [WithBeat] demands. It sends nothing. The error says why the lock is not held.
func (l *Lock) Beat() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == isHeld && l.beat != nil {
		l.beat.Reset(l.terms.beat)
	}
	return l.err()
}

func (l *Lock) checkEnd() {
	l.mu.Lock()
	left := time.Until(l.until)
	if l.state == isHeld && left > 0 {
		l.ending.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		l.lose(errors.New("its lease has ended"))
	}
}

// renewAlways renews the lease whenever a third of it has passed.
func (l *Lock) renewAlways(ctx context.Context) {
	pause := l.sureLease() / 3
	for {
		select {
		case <-time.After(pause):
		case <-l.extended:
			pause = l.sureLease() / 3
			continue
		case <-ctx.Done():
			return
		}
		switch err := l.confirm(ctx, time.Now().Add(min(l.sureLease()/3, l.patience()))); {
		case err == nil:
			pause = l.sureLease() / 3
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrUnreachable), errors.Is(err, ErrTooFewReplicas), writesNothing(err):
			pause = min(l.sureLease()/30, time.Second)
		default:
			l.lose(err)
			return
		}
	}
}

// patience returns how long a renewal may take.
func (l *Lock) patience() time.Duration {
	if l.terms.replicas > 0 {
		return l.terms.replicasTimeout + defaultAnswer
	}
	return defaultAnswer
}

// Extend sets the lease again, counted from now. 0 keeps its length. If an answer is lost, the lock counts from then on
// with the shortest lease that the server may have.
func (l *Lock) Extend(ctx context.Context, lease time.Duration) error {
	if lease != 0 && (lease < shortestLease || lease > longestLease) {
		return fmt.Errorf("dlock: a lease is between %v and %v, not %v", shortestLease, longestLease, lease)
	}
	if err := l.err(); err != nil {
		return err
	}
	if lease != 0 {
		l.wants(lease)
	}
	until := time.Now().Add(l.patience())
	if deadline, ok := ctx.Deadline(); ok {
		until = earlier(until, deadline)
	}
	err := l.confirm(ctx, until)
	select {
	case l.extended <- struct{}{}:
	default:
	}
	if errors.Is(err, ErrLost) {
		l.lose(err)
	}
	return err
}

// err returns why the lock is not held.
func (l *Lock) err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// confirm renews the lease, and notes until when the lock is held.
func (l *Lock) confirm(ctx context.Context, until time.Time) error {
	sessions := &l.client.sessions
	lease := max(l.wantedLease(), time.Until(l.stays)) // A renewal does not shorten the time that the lock stays.
	b := sessions.bindingOf(l)
	sent := time.Now()
	var replies []any
	var err error
	if b != nil {
		replies, err = l.renew(ctx, until, lease, "SESSIONID", b.id)
	}
	if b == nil || l.hasNoSession(b, err) {
		replies, err = l.renew(ctx, until, lease)
	}
	if err != nil {
		return explainedHold(l.target.name, err)
	}
	for _, reply := range replies {
		if reply == nil {
			return &failure{ErrLost, l.target.name, errors.New("the server has no such hold")}
		}
	}
	held := endOf(sent, min(lease, l.sureLease()))
	if contains(replies[:len(l.target.keys)], int64(0)) {
		// A cap has cut it (MAXHOLD, dlock.max-hold). The server knows how much is left.
		if held, err = l.check(ctx, until); err != nil {
			return err
		}
		sessions.caps(l, held)
	}
	if b != nil {
		sessions.proves(l, b, sent)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proved = sent
	l.endsAt(held)
	return nil
}

// hasNoSession returns whether the server does not know the session. It is opened again, and binds the lock then.
func (l *Lock) hasNoSession(b *binding, err error) bool {
	var answer ServerError
	if !errors.As(err, &answer) || answer.Code() != "NOSESSION" {
		return false
	}
	l.client.sessions.ended(b)
	return true
}

// check asks the server until when the lock is held.
func (l *Lock) check(ctx context.Context, until time.Time) (time.Time, error) {
	token := strconv.FormatInt(l.token, 10)
	var commands []command
	for _, key := range l.target.keys {
		commands = append(commands, command{"DLOCK.CHECK", key, token})
	}
	sent := time.Now()
	replies, _, err := l.client.ask(ctx, l.target.keys[0], until, commands...)
	if err != nil {
		return sent, explainedHold(l.target.name, err)
	}
	left := longestLease
	for _, reply := range replies {
		ms, ok := reply.(int64)
		if !ok {
			return sent, &failure{ErrLost, l.target.name, errors.New("the server has no such hold")}
		}
		left = min(left, time.Duration(ms)*time.Millisecond)
	}
	return endOf(sent, left), nil
}

// renew returns the replies to the renewals.
func (l *Lock) renew(ctx context.Context, until time.Time, lease time.Duration, session ...string) ([]any, error) {
	l.sends(lease)
	if len(session) > 0 {
		l.client.sessions.sees(l)
	}
	commands := l.target.renew(l.owner, l.token, lease, session...)
	key := l.target.keys[0]
	if l.terms.replicas == 0 {
		replies, unread, err := l.client.ask(ctx, key, until, commands...)
		if unread == 0 {
			l.answered(err == nil)
		}
		return replies, err
	}
	timeout := min(l.terms.replicasTimeout, max(time.Millisecond, time.Until(until)))
	replies, err := l.client.once(ctx, key, false, until, l.patience(), append(commands, waitFor(l.terms.replicas, timeout))...)
	if !isUnread(err) {
		l.answered(err == nil && firstError(replies) == nil)
	}
	if err != nil {
		if isAnswer(err) {
			return nil, err
		}
		return nil, unanswered(ctx, err)
	}
	for _, reply := range replies {
		if reply == nil {
			return replies, nil
		}
	}
	return replies, tooFew(replies, l.terms.replicas)
}

// lose says that the lock is lost.
func (l *Lock) lose(why error) {
	l.mu.Lock()
	if l.state != isHeld {
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

// endWithSession releases the lock with its session, which ends now. False: it is not held.
func (l *Lock) endWithSession() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != isHeld {
		return false
	}
	l.ends(isReleased)
	l.cancel(&failure{ErrReleased, l.target.name, ErrClosed})
	return true
}

// ends stops all that goes on for the lock.
func (l *Lock) ends(s state) {
	l.state = s
	if l.ending != nil {
		l.ending.Stop()
	}
	if l.beat != nil {
		l.beat.Stop()
	}
	l.unkeep()
}

func (c *Client) forget(l *Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, l)
}
