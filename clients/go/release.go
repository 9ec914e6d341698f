package dlock

import (
	"context"
	"errors"
	"time"
)

// Unlock releases the lock. The context limits how long that may take (3 s without a deadline); if it has ended, or no
// server answers, the client goes on trying behind for 3 s. A hold that cannot be released ends with its lease.
//
// The error is [ErrLost] if the server no longer had the lock, [ErrUnreachable] if none answered, and [ErrReleased] if the
// lock was released before, also by [Client.Close].
func (l *Lock) Unlock(ctx context.Context) error {
	c := l.client
	if !c.beginsRelease() {
		if err := l.err(); err != nil {
			return err
		}
		return &failure{ErrReleased, l.target.name, ErrClosed} // Close is about to.
	}
	defer c.work.Done()
	defer c.releases.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.last, func() { cancel(ErrClosed) })
	defer stop()
	return l.unlock(ctx)
}

func (l *Lock) unlock(ctx context.Context) error {
	l.mu.Lock()
	if l.state == isReleased {
		l.mu.Unlock()
		return &failure{ErrReleased, l.target.name, nil}
	}
	wasLost := l.state == isLost
	l.ends(isReleased)
	l.mu.Unlock()
	wasHeld := time.Now().Before(l.certainUntil())
	kept := l.client.sessions.remove(l)
	l.cancel(&failure{ErrReleased, l.target.name, nil})
	l.client.forget(l)

	until := time.Now().Add(unlockLimit)
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline
	}
	commands := l.farewell()
	replies, unread, err := l.client.ask(ctx, l.target.keys[0], until, commands...)
	if err != nil {
		l.releaseBehind(commands, kept)
		return explained(l.target.name, err)
	}
	if wasLost {
		return context.Cause(l.ctx)
	}
	for _, reply := range replies {
		// If the lock was held when this began, a second try that finds nothing finds what the first has done.
		if reply == nil && (unread == 0 || !wasHeld) {
			return &failure{ErrLost, l.target.name, errors.New("the server has no such hold")}
		}
	}
	return nil
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

// releaseBehind releases holds that nobody waits for. If no server answers, they end with their leases; the session would
// keep them, so it has to go on trying.
func (c *Client) releaseBehind(key string, commands []command, kept bool) {
	_, _, err := c.ask(c.last, key, time.Now().Add(cleanupLimit), commands...)
	if err == nil || isAnswer(err) || !kept || c.ctx.Err() != nil {
		return
	}
	if p, err := c.poolOf(c.last, key, false, time.Now().Add(step)); err == nil {
		c.sessions.owe(p, key, commands)
	}
}
