package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
		c.forget(l) // The session has lost the lock meanwhile.
	}
	if c.sessions.seatOf(l) != nil {
		// The session watches and renews its locks.
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = time.AfterFunc(time.Until(l.lease.until), l.checkEnd)
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

// Beat is the sign of life that [WithBeat] demands of the work. It sends nothing. The error says why there is no hold.
func (l *Lock) Beat() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.state == isHeld && l.beat != nil {
		l.beat.Reset(l.terms.beat)
	}
	return l.err()
}

// checkEnd makes the lock lost if its lease has ended, or waits for the end that the lease has now.
func (l *Lock) checkEnd() {
	l.mu.Lock()
	left := time.Until(l.lease.until)
	if l.lease.state == isHeld && left > 0 {
		l.ending.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		l.lose(errEnded)
	}
}

// renewAlways renews the lease whenever that is due, until the lock is lost or ctx ends.
func (l *Lock) renewAlways(ctx context.Context) {
	for {
		next := l.due()
		var due <-chan time.Time
		if next.what != rests {
			due = time.After(time.Until(next.at))
		}
		select {
		case <-due:
		case <-l.extended:
			continue
		case <-ctx.Done():
			return
		}
		switch err := l.confirm(ctx, l.answerBy()); {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrUnreachable), errors.Is(err, ErrTooFewReplicas), writesNothing(err):
			// The hold may still be there: the next renewal shows.
		default:
			l.lose(err)
			return
		}
	}
}

// due returns what has to be done next to keep the lease, and when.
func (l *Lock) due() due {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beats.next
}

// answerBy returns the time by which a renewal in the background that is sent now has to be answered.
func (l *Lock) answerBy() time.Time {
	if l.terms.replicas > 0 {
		return time.Now().Add(min(l.sureLease()/3, l.answerWithin()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return earlier(time.Now().Add(answerWithin(l.lease.lease())), l.lease.until)
}

// answerWithin returns how long a renewal may take for which a caller waits.
func (l *Lock) answerWithin() time.Duration {
	if l.terms.replicas > 0 {
		return l.terms.replicasTimeout + defaultAnswer
	}
	return defaultAnswer
}

// Extend sets the lease again, counted from now. A lease of 0 keeps the present length. If the answer is lost, the
// client assumes the shortest lease that the server may have.
func (l *Lock) Extend(ctx context.Context, lease time.Duration) error {
	if lease != 0 && (lease < shortestLease || lease > longestLease) {
		return fmt.Errorf("dlock: a lease must be between %v and %v, not %v", shortestLease, longestLease, lease)
	}
	if err := l.err(); err != nil {
		return err
	}
	if lease != 0 {
		l.mu.Lock()
		l.wanted = lease
		l.mu.Unlock()
	}
	until := time.Now().Add(l.answerWithin())
	if deadline, ok := ctx.Deadline(); ok {
		until = earlier(until, deadline)
	}
	err := l.confirm(ctx, until)
	// The goroutine that renews looks again when the next renewal is due.
	select {
	case l.extended <- struct{}{}:
	default:
	}
	if errors.Is(err, ErrLost) {
		l.lose(err)
	}
	return err
}

// confirm renews the lease, or asks how much is left of it if a cap has cut the renewal.
func (l *Lock) confirm(ctx context.Context, until time.Time) error {
	sessions := &l.client.sessions
	lease := max(l.wantedLease(), time.Until(l.stays)) // A renewal does not shorten the time that the lock stays.
	at := sessions.seatOf(l)
	replies, number, err := l.renew(ctx, until, lease, at)
	if at != nil && at.opening != nil && isNoSession(err) {
		// The server does not know the session. The lock is renewed without it, and bound when the session is open.
		sessions.ended(at)
		at = &seat{home: at.home}
		replies, number, err = l.renew(ctx, until, lease, at)
	}
	if err != nil {
		return explainedHold(l.target.name, err)
	}
	if contains(replies[:len(l.target.keys)], int64(0)) {
		// A cap (MAXHOLD, dlock.max-hold) has cut the lease. The server knows how much is left.
		l.capped(number)
		if err := l.check(ctx, until); err != nil {
			return err
		}
	} else {
		l.renewed(number)
	}
	if at != nil && !sessions.proves(l, at) {
		return &failure{ErrLost, l.target.name, sessions.reason(l)}
	}
	return l.err()
}

// renew sends renewals until one is answered, and returns its replies and its number. The lease counts from the time at
// which that renewal was sent.
func (l *Lock) renew(ctx context.Context, until time.Time, lease time.Duration, at *seat) ([]any, int, error) {
	var session []string
	if at != nil && at.opening != nil {
		session = []string{"SESSIONID", at.id}
	}
	commands := l.target.renew(l.owner, l.token, lease, session...)
	for tries := 0; ; tries++ {
		number := l.sends(lease)
		if err := l.err(); err != nil {
			return nil, 0, err
		}
		if at != nil {
			l.client.sessions.asks(l, at)
		}
		replies, err := l.askOnce(ctx, tries > 0, until, commands)
		if err == nil {
			return l.answered(replies, number)
		}
		// Without an answer, the server may have executed the renewal, or of several commands some.
		if isUnread(err) || len(commands) > 1 {
			l.cut(number)
		} else {
			l.refused(number)
		}
		if isAnswer(err) || errors.Is(err, ErrClosed) {
			return nil, 0, err
		}
		if l.terms.replicas > 0 || pause(ctx, tries, until) != nil {
			return nil, 0, unanswered(ctx, err)
		}
	}
}

// answered looks at the replies to a renewal, which fails without such a hold, and if too few replicas acknowledge it.
func (l *Lock) answered(replies []any, number int) ([]any, int, error) {
	err := firstError(replies[:len(l.target.keys)])
	if err == nil && contains(replies[:len(l.target.keys)], nil) {
		err = &failure{ErrLost, l.target.name, errNoHold}
	}
	if err == nil && l.terms.replicas > 0 {
		err = tooFew(replies, l.terms.replicas)
	}
	if err != nil {
		l.refused(number)
	}
	return replies, number, err
}

// askOnce sends the commands of a renewal, and WAIT if replicas must acknowledge it.
func (l *Lock) askOnce(ctx context.Context, again bool, until time.Time, commands []command) ([]any, error) {
	key, answer := l.target.keys[0], step
	if l.terms.replicas > 0 {
		timeout := min(l.terms.replicasTimeout, max(time.Millisecond, time.Until(until)))
		commands, answer = append(commands[:len(commands):len(commands)], waitFor(l.terms.replicas, timeout)), l.answerWithin()
	}
	return l.client.once(ctx, key, again, until, answer, commands...)
}

func isNoSession(err error) bool {
	var answer ServerError
	return errors.As(err, &answer) && answer.Code() == "NOSESSION"
}

// check asks the server until when the lock is held.
func (l *Lock) check(ctx context.Context, until time.Time) error {
	commands := l.target.look(l.token)
	var sent time.Time
	var number int
	l.changes(func(now time.Time) { sent, number = now, l.lease.asks(now) })
	replies, _, err := l.client.ask(ctx, l.target.keys[0], until, commands...)
	if err != nil {
		l.changes(func(time.Time) { l.lease.refused(number) })
		return explainedHold(l.target.name, err)
	}
	left, isThere := leastOf(replies)
	if !isThere {
		return &failure{ErrLost, l.target.name, errNoHold}
	}
	l.changes(func(time.Time) {
		l.lease.left(number, left)
		l.beats.checked(&l.lease)
	})
	l.client.sessions.caps(l, endOf(sent, left))
	return nil
}

// wantedLease returns the length that the next renewal asks for.
func (l *Lock) wantedLease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted
}

// sureLease returns the shortest lease that the server may have now.
func (l *Lock) sureLease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.sure
}

// sends notes a renewal, before it is sent, and returns its number. If the renewal shortens the lease, the lock may
// end before the answer is read.
func (l *Lock) sends(lease time.Duration) (number int) {
	l.changes(func(now time.Time) {
		number = l.lease.sends(now, lease)
		l.beats.sends(&l.lease, now)
	})
	return number
}

// renewed notes that the server has executed a renewal.
func (l *Lock) renewed(number int) {
	l.changes(func(now time.Time) {
		if sent, ok := l.lease.ok(number); ok {
			l.beats.ok(&l.lease, now, sent)
		}
	})
}

// refused notes that a renewal was not executed, or that too few replicas have acknowledged it.
func (l *Lock) refused(number int) {
	l.changes(func(now time.Time) {
		l.lease.refused(number)
		l.beats.failed(&l.lease, now)
	})
}

// cut notes that a renewal gets no answer.
func (l *Lock) cut(number int) {
	l.changes(func(now time.Time) {
		l.lease.cut(number)
		l.beats.failed(&l.lease, now)
	})
}

// capped notes that a cap has made the lease shorter than a renewal asked for.
func (l *Lock) capped(number int) {
	l.changes(func(now time.Time) {
		l.lease.refused(number)
		l.beats.capped(now)
	})
}

// changes runs a function that changes the lease, and sets the timer to the new end. After the end, the lock is lost.
func (l *Lock) changes(what func(now time.Time)) {
	l.mu.Lock()
	now := time.Now()
	if l.hasPassed(now) {
		l.mu.Unlock()
		l.lose(errEnded) // The timer is late.
		return
	}
	defer l.mu.Unlock()
	what(now)
	if l.lease.state == isHeld && l.ending != nil {
		l.ending.Reset(time.Until(l.lease.until))
	}
}

// hasPassed returns whether the lease is over. False for a lock of a session, which watches the ends of its locks.
func (l *Lock) hasPassed(now time.Time) bool {
	lease := l.lease
	lease.passes(now)
	return l.ending != nil && l.lease.state == isHeld && lease.state == isLost
}

var errEnded = errors.New("its lease has ended")
