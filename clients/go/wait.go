package dlock

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"
)

var (
	errMoved  = errors.New("the server is another one, or was away")
	errSilent = errors.New("the server is silent")
)

// wait sends the request with BLOCK on a connection of its own, and waits for the reply.
func (a *acquisition) wait(again bool) (turn, error) {
	c, give, err := a.open(again, a.connect)
	if err != nil {
		return a.unsent(err)
	}
	defer give()
	now := time.Now()
	if a.left(now) == 0 {
		return a.over(now), errOver
	}
	block := strconv.FormatInt(a.block(now).Milliseconds(), 10)
	number := a.sends(now)
	reply, err := a.await(c, a.command(block))
	if err != nil {
		a.parts(c, err)
		return a.unread(err)
	}
	return a.read(c, number, reply, true)
}

// connect returns a connection for the wait alone. A pool makes only a limited number of connections at the same time.
func (a *acquisition) connect(p *pool) (*conn, func(), error) {
	c := p.pop()
	if c == nil {
		queued := time.Now()
		err := a.inTurn(p.lastHeard, 0, func(until time.Time) error { return enter(a.io, p.making, until) })
		if err != nil {
			return nil, nil, err
		}
		defer func() { <-p.making }()
		if c, err = p.makeToWait(a.io, queued, a.answerBy()); err != nil {
			return nil, nil, err
		}
	}
	return c, func() { p.give(c) }, nil
}

// parts gives up a connection on which no reply came.
func (a *acquisition) parts(c *conn, err error) {
	switch {
	case errors.Is(err, errMoved):
		// The request is repeated on another connection and takes over this place in the queue. A release behind the request,
		// on this connection, would release the hold of the repeat.
		c.close()
	case isSilence(err), errors.Is(err, errSilent):
		// A release behind the request undoes a grant that nobody reads. The next request has another owner.
		if c.part(a.target.releaseAll(a.owner)) {
			a.parted = append(a.parted, c)
		}
		a.forsake()
	default:
		c.close()
	}
	if a.io.Err() == nil {
		c.pool.distrust()
	}
}

// await sends a command and waits for its reply, for as long as the server is there.
func (a *acquisition) await(c *conn, wait command) (any, error) {
	var limit time.Time
	if !a.ends.IsZero() {
		limit = a.ends.Add(late)
	}
	c.SetDeadline(time.Now().Add(step))
	if err := c.send(limit, wait); err != nil {
		return nil, err
	}
	w := &watch{acquisition: a, conn: c}
	ctx, cancel := context.WithCancel(a.io)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
		a.hears(w.heard)
	}()
	stop := c.endsWith(a.io)
	defer func() { c.spoiled = !stop() || c.spoiled }()
	for {
		// An interrupter sets its reason first, and then moves the deadline to the past.
		c.SetDeadline(limit)
		switch {
		case a.io.Err() != nil:
			return nil, &canceled{context.Cause(a.io)}
		case w.found.Load() != nil:
			return nil, *w.found.Load()
		case !limit.IsZero() && !time.Now().Before(limit):
			return nil, errSilent
		}
		there, err := c.answers()
		if err != nil {
			return nil, err
		}
		if there {
			c.SetDeadline(a.confirmBy())
			return c.read()
		}
	}
}

// watch asks the server of a wait now and then whether it is still there: a server that hangs sends no reply to BLOCK,
// and keeps the connection open.
type watch struct {
	acquisition *acquisition
	conn        *conn
	// When the server answered last. The acquisition reads it after the end of run.
	heard time.Time
	// Why the wait must not go on on this connection.
	found atomic.Pointer[error]
}

// run probes the server until it finds a reason to end the wait, or ctx ends. A server that answers after a missed
// probe was away, perhaps without the request since. Only a wait without a limit gives up by the outage.
func (w *watch) run(ctx context.Context) {
	a := w.acquisition
	w.heard = a.heard
	every := a.probeEvery()
	missed := false
	for {
		next := time.Until(w.heard.Add(every))
		if missed {
			next = a.terms.outage / 30
		}
		select {
		case <-time.After(max(next, time.Millisecond)):
		case <-ctx.Done():
			return
		}
		address, heard, err := w.probe(ctx, missed)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			w.heard = heard
			if missed || address != w.conn.pool.address {
				w.tell(errMoved)
				return
			}
		case a.ends.IsZero() && !time.Now().Before(w.heard.Add(a.terms.outage)):
			w.tell(errSilent)
			return
		default:
			missed = true
		}
	}
}

// probe returns the address of a server that answers, and when it answered last. It asks nothing if another user of the
// pool has had an answer meanwhile.
func (w *watch) probe(ctx context.Context, again bool) (string, time.Time, error) {
	a := w.acquisition
	answer := min(a.terms.outage/3, defaultAnswer)
	until := time.Now().Add(answer)
	if a.ends.IsZero() {
		until = earlier(until, later(time.Now(), w.heard.Add(a.terms.outage)))
	}
	key := a.target.keys[0]
	p, err := a.client.poolOf(ctx, key, again, until)
	if err != nil {
		return "", w.heard, err
	}
	if heard := p.lastHeard(); !again && heard.After(w.heard) {
		return p.address, heard, nil
	}
	replies, err := p.exchange(ctx, until, answer, command{"DLOCK.CHECK", key, "1"})
	if err == nil && isStarting(replies[0]) {
		err = firstError(replies)
	}
	// Every other reply shows that the server works, even a NOPERM to this user.
	return p.address, time.Now(), err
}

// tell ends the wait for this reason.
func (w *watch) tell(why error) {
	w.found.Store(&why)
	w.conn.SetDeadline(past)
}
