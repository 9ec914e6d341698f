package dlock

import (
	"context"
	"errors"
	"time"
)

// Unlock releases the lock. The deadline of the context limits how long that may take (3 s without one). If the context has
// ended before, or is canceled meanwhile, the server has a second to answer: `defer lock.Unlock(ctx)` releases the lock. If no
// server answers in time, the client goes on trying in the background for 3 s. A hold that cannot be released ends with its
// lease.
//
// The error is [ErrLost] if the server no longer had the lock, [ErrUnreachable] if none answered, and [ErrReleased] if the
// lock was released before, also by [Client.Close].
func (l *Lock) Unlock(ctx context.Context) error {
	c := l.client
	if !c.beginsRelease() {
		if err := l.err(); err != nil {
			return err
		}
		return &failure{ErrReleased, l.target.name, ErrClosed} // Close is about to release it.
	}
	defer c.work.Done()
	defer c.releases.Done()
	return l.unlock(ctx)
}

func (l *Lock) unlock(ctx context.Context) error {
	l.mu.Lock()
	if l.lease.state == isReleased {
		l.mu.Unlock()
		return &failure{ErrReleased, l.target.name, nil}
	}
	wasLost := l.lease.state == isLost
	l.ends(isReleased)
	l.mu.Unlock()
	wasHeld := time.Now().Before(l.certainUntil())
	kept := l.client.sessions.remove(l)
	l.cancel(&failure{ErrReleased, l.target.name, nil})
	l.client.forget(l)

	patient, until, end := l.client.outlasting(ctx)
	defer end()
	commands := l.farewell()
	replies, unread, err := l.client.ask(patient, l.target.keys[0], until, commands...)
	if l.isOpen {
		c := l.client
		c.behind(func() { c.releaseLate(l.target.keys[0], l.target.releaseAll(l.owner), kept, l.stays) })
	}
	switch {
	case err != nil && !isAnswer(err) && limitOf(ctx) != nil:
		var o *outage
		if errors.As(err, &o) {
			err = o.cause
		}
		err = &failure{&outage{err, limitOf(ctx)}, l.target.name, nil}
	case err != nil:
		err = explainedHold(l.target.name, err)
	}
	if errors.Is(err, ErrLost) {
		return err
	}
	if err != nil {
		l.releaseBehind(commands, kept)
		return err
	}
	if wasLost {
		return context.Cause(l.ctx)
	}
	for _, reply := range replies {
		// A nil after a try without an answer is no loss if the lock was held: that try may have released it.
		if reply == nil && (unread == 0 || !wasHeld) {
			return &failure{ErrLost, l.target.name, errNoHold}
		}
	}
	return nil
}

// outlasting returns the context of a release, and until when it may go on. If ctx has ended before, or is canceled meanwhile,
// the server has a second to answer.
func (c *Client) outlasting(ctx context.Context) (context.Context, time.Time, func()) {
	until := time.Now().Add(unlockLimit)
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline
	}
	if ctx.Err() != nil {
		until = time.Now().Add(defaultAnswer)
	}
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopClient := context.AfterFunc(c.last, func() { cancel(ErrClosed) })
	stopCaller := context.AfterFunc(ctx, func() {
		if isCanceled(ctx) {
			time.AfterFunc(defaultAnswer, func() { cancel(context.Cause(ctx)) })
		}
	})
	return patient, until, func() {
		stopClient()
		stopCaller()
		cancel(nil)
	}
}

// farewell returns what ends the hold: at once, or by a lease that nothing renews.
func (l *Lock) farewell() []command {
	if left := time.Until(l.stays); left > 0 {
		return l.target.renew(l.owner, l.token, left)
	}
	return l.target.release(l.owner, l.token)
}

func (l *Lock) releaseBehind(commands []command, kept bool) {
	c := l.client
	if !c.begins() {
		return
	}
	defer c.work.Done()
	c.behind(func() { c.releaseBehind(l.target.keys[0], commands, kept) })
}

// How long after the end of its connection a command may be executed: on the same machine, and at most.
var seesAnEnd = [...]time.Duration{20 * time.Millisecond, time.Second}

// [Client.Close] leaves this much of that time: a second after its begin, it may end all that goes on.
const closingPause = 800 * time.Millisecond

// releaseLate releases what late copies of a request take after the release of the lock, but nothing before `stays`.
func (c *Client) releaseLate(key string, commands []command, kept bool, stays time.Time) {
	for _, pause := range seesAnEnd {
		c.awaitCopies(pause, kept && !c.borrows())
		if time.Now().After(stays) && c.releaseBehind(key, commands, kept) {
			return
		}
	}
}

// awaitCopies pauses. If the client is closed, the copies that name its session (`named`) can take nothing any more.
func (c *Client) awaitCopies(pause time.Duration, named bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return
	case <-c.ctx.Done():
	}
	if !named {
		select {
		case <-timer.C:
		case <-time.After(closingPause):
		case <-c.last.Done(): // Nothing is sent any more.
		}
	}
}

// releaseBehind releases holds in the background: no caller waits for the release. If no server executes it, they end
// with their leases. A session would keep its holds (`kept`), so it goes on trying: then the result is true.
func (c *Client) releaseBehind(key string, commands []command, kept bool) (owed bool) {
	_, _, err := c.ask(c.last, key, time.Now().Add(cleanupLimit), commands...)
	if err == nil || isAnswer(err) && !writesNothing(err) || !kept || c.ctx.Err() != nil {
		return false
	}
	p, err := c.poolOf(c.last, key, false, time.Now().Add(step))
	if err == nil {
		c.sessions.owe(p, key, commands)
	}
	return err == nil
}
