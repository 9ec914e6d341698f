package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// HandOver stops keeping the lock, and does not release it: another client, or another program, goes on with it by
// [Client.Resume], with its name, [Lock.Owner] and [Lock.Token]. Until then it stays for its lease, or for as long as this
// client lives, if a session keeps it. Nothing is sent. The error says why the lock is not held.
func (l *Lock) HandOver() error {
	l.mu.Lock()
	if l.lease.state != isHeld {
		l.mu.Unlock()
		return l.err()
	}
	if l.hasPassed(time.Now()) {
		l.mu.Unlock()
		l.lose(errEnded) // The timer is late.
		return l.err()
	}
	l.ends(isReleased)
	l.mu.Unlock()
	l.client.sessions.remove(l)
	l.cancel(&failure{ErrReleased, l.target.name, errors.New("it was handed over")})
	l.client.forget(l)
	return nil
}

// Resume goes on with a lock that was granted to another client, perhaps in another program, which handed it over by
// [Lock.HandOver] or has ended. This client renews it from now on, with the lease of the options, and releases it. It is one
// hold still: its token stays the same.
//
// The error is [ErrLost] if the server has no such hold. A lock that a session keeps needs a client with a session. A lock
// that was not resumed is not released: it stays for its lease, or ends with the session that keeps it.
func (c *Client) Resume(ctx context.Context, name, owner string, token int64, options ...Option) (*Lock, error) {
	terms, err := c.terms(options)
	if err != nil {
		return nil, err
	}
	t := one("", name)
	t.entries = command{"ALL"}
	if err := t.check(); err != nil {
		return nil, err
	}
	if owner == "" || token < 1 {
		return nil, fmt.Errorf("dlock: %s: a lock is resumed with its owner and its token", name)
	}
	if !c.begins() {
		return nil, &failure{ErrClosed, name, nil}
	}
	defer c.work.Done()
	a := newAcquisition(ctx, c, t, terms)
	a.owner, a.token = owner, token
	if a.ends.IsZero() {
		a.ends = a.heard.Add(defaultAnswer)
	}
	a.io, a.uncancel = c.untilCanceled(ctx)
	defer a.uncancel()
	defer a.unbind()
	for tries := 0; ; tries++ {
		lock, err := a.resume(tries > 0)
		switch {
		case err == nil:
			return lock, nil
		case a.io.Err() != nil:
			return nil, fmt.Errorf("dlock: %s: %w", name, context.Cause(a.io))
		case errors.Is(err, ErrLost), isAnswer(err) && !isNoSession(err), errors.Is(err, ErrClosed), errors.Is(err, errKept):
			return nil, explainedHold(name, err)
		case isUnread(err):
			a.isRenewalOpen = true
		}
		if pause(a.io, tries, a.ends) != nil {
			return nil, &failure{&outage{err, limitOf(ctx)}, name, nil}
		}
	}
}

var errKept = errors.New("a session keeps the lock, so that a client without one cannot go on with it")

// resume renews the hold once, and looks at it.
func (a *acquisition) resume(again bool) (*Lock, error) {
	key := a.target.keys[0]
	p, err := a.client.poolOf(a.io, key, again, a.answerBy())
	if err == nil {
		err = a.bind(p)
	}
	if err != nil {
		return nil, &unsent{err}
	}
	var session []string
	if a.bound != nil {
		session = []string{"SESSIONID", a.bound.id}
	}
	commands := a.target.renew(a.owner, a.token, a.terms.lease, session...)
	commands = append(append(commands, a.target.look(a.token)...), command{"DLOCK.INFO", key, "OWNER", a.owner})
	sent := time.Now()
	replies, err := a.client.once(a.io, key, again, a.answerBy(), step, commands...)
	if err == nil {
		err = firstError(replies)
	}
	if err != nil {
		if isNoSession(err) && a.bound != nil {
			a.client.sessions.ended(a.bound)
		}
		return nil, err
	}
	left, isHeld := leastOf(replies[1:2])
	hold := holdOf(replies[2], a.token)
	switch {
	case replies[0] == nil, !isHeld, hold == nil:
		return nil, &failure{ErrLost, a.target.name, errNoHold}
	case a.bound == nil && field(hold, "session") != nil:
		return nil, errKept
	}
	if cap, ok := field(hold, "cap").(int64); ok {
		a.cap = endOf(sent, time.Duration(cap)*time.Millisecond)
	}
	a.slot = -1
	if slot, ok := field(hold, "slot").(int64); ok {
		a.slot = int(slot)
	}
	a.since = sent
	if a.bound != nil {
		a.under = a.bound.opening
	}
	if replies[0] == int64(0) { // A cap has cut it.
		a.cap = endOf(sent, left)
	}
	return a.held()
}

// holdOf returns the hold with a token. Nil: there is none.
func holdOf(reply any, token int64) any {
	holds, _ := field(reply, "holds").([]any)
	for _, hold := range holds {
		if field(hold, "token") == token {
			return hold
		}
	}
	return nil
}
