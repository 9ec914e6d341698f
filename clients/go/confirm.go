package dlock

import (
	"errors"
	"time"
)

// confirm renews the grant, because too little of its lease is certain, or the session may have ended meanwhile.
func (a *acquisition) confirm(again bool) (turn, error) {
	key := a.target.keys[0]
	p, err := a.client.poolOf(a.io, key, again, a.confirmBy())
	if err == nil && a.usesSession() {
		a.unbind()
		a.bound, err = a.client.sessions.join(a.io, p, a.confirmBy())
	}
	if err != nil {
		return a.unsent(err)
	}
	var session []string
	if at := a.named(); at != nil {
		session = []string{"SESSIONID", at.id}
	}
	commands := a.target.renew(a.owner, a.token, a.terms.lease, session...)
	commands = append(commands, a.target.look(a.token)...)
	sent := time.Now()
	number := a.attempt.renews(sent)
	replies, err := a.client.once(a.io, key, again, a.confirmBy(), step, commands...)
	keys := len(a.target.keys)
	left, isHeld := a.terms.lease, true
	if err == nil {
		err = firstError(replies[:keys])
	}
	if err == nil {
		if refusal := firstError(replies[keys:]); refusal == nil {
			left, isHeld = leastOf(replies[keys:])
		} else if contains(replies[:keys], int64(0)) { // Without a 0, the lease is what was asked for: no CHECK is needed.
			err = refusal
		}
	}
	if err != nil {
		return a.unconfirmed(number, err)
	}
	now := time.Now()
	if contains(replies, nil) || !isHeld {
		return a.vanished(), nil
	}
	if contains(replies[:keys], int64(0)) {
		a.cap = endOf(sent, left)
	}
	most := endOf(sent, left)
	if at := a.named(); at != nil {
		a.under = at.opening
		most = earlier(most, a.client.sessions.endOf(at.opening))
	}
	return a.ok(now, number, most), nil
}

// vanished ends a grant that the server no longer has. The server may still have other keys of the grant, or may grant
// a copy of the request that arrives late: the owner is then released.
func (a *acquisition) vanished() turn {
	if len(a.target.keys) > 1 || len(a.copies) > 0 {
		a.debts = append(a.debts, a.owner)
	}
	return a.gone(time.Now())
}

// confirmBy returns when to stop waiting for the answer to a renewal of the grant.
func (a *acquisition) confirmBy() time.Time { return a.limits.confirmBy(time.Now(), a.heard) }

// unconfirmed takes the failure of a renewal of the grant.
func (a *acquisition) unconfirmed(number int, err error) (turn, error) {
	now := time.Now()
	switch {
	case a.io.Err() != nil:
		return a.canceled(), err
	case isNoSession(err):
		a.client.sessions.ended(a.bound)
		return a.refused(now, number), err
	case isOverwritten(err):
		return a.vanished(), nil
	case isAnswer(err) && !writesNothing(err), errors.Is(err, ErrClosed):
		a.cause = err
		return a.failed(number), err
	case isUnread(err):
		a.isRenewalOpen = true
		return a.cut(now), err
	}
	return a.refused(now, number), err
}

// held returns the lock of a grant, or an error if the client is closed, or the lease or the session has ended.
func (a *acquisition) held() (*Lock, error) {
	l := newLock(a.ctx, a.client, a.target, a.terms, a.since, len(a.copies) > 0 || a.isRenewalOpen)
	l.owner, l.token, l.slot, l.isOpen = a.owner, a.token, a.slot, len(a.copies) > 0
	if !a.cap.IsZero() {
		l.binding.caps(a.cap)
		l.lease.until = earlier(l.lease.until, a.cap)
	}
	if a.bound != nil {
		var asked *opening
		if at := a.named(); at != nil {
			asked = at.opening
		}
		a.client.sessions.add(a.bound.home, a.under, asked, l)
	} else if a.under != nil {
		l.lease.until = earlier(l.lease.until, a.client.sessions.endOf(a.under))
	}
	err := l.keep()
	if err == nil && l.Remaining() == 0 {
		l.lose(errOver)
		err = &failure{&outage{a.cause, limitOf(a.ctx)}, a.target.name, nil}
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
