package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lock acquires a lock. It waits in the queue of the server, until ctx ends.
//
// The error is [ErrNotGranted] if the deadline of ctx has passed, and [ErrUnreachable] if no server answered until then;
// both are [context.DeadlineExceeded], too. If ctx is canceled, it is the cause of that.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.acquire(ctx, one("DLOCK.ACQUIRE", name), options)
}

// TryLock acquires a lock if it is free. The error is [ErrNotGranted] if it is not.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.Lock(ctx, name, append(options[:len(options):len(options)], WithWait(0))...)
}

func (c *Client) acquire(ctx context.Context, t target, options []Option) (*Lock, error) {
	terms, err := c.terms(options)
	if err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if isCanceled(ctx) {
		return nil, fmt.Errorf("dlock: %s: %w", t.name, context.Cause(ctx))
	}
	if ctx.Err() != nil { // The deadline has passed: no server was asked.
		return nil, &failure{&outage{context.Cause(ctx), ctx.Err()}, t.name, nil}
	}
	if !c.begins() {
		return nil, &failure{ErrClosed, t.name, nil}
	}
	defer c.work.Done()
	a := newAttempt(ctx, c, t, terms)
	a.io, a.over = c.untilCanceled(ctx)
	defer a.over()
	defer a.end()
	lock, err := a.lock()
	if err != nil && a.unread {
		a.debts = append(a.debts, a.owner)
	}
	a.settle()
	return lock, err
}

// attempt is one acquisition, however often it is sent. A repeat carries the same owner and REQUEST, so that it gets the
// grant or the place in the queue of the first.
type attempt struct {
	client *Client
	target target
	terms  terms
	ctx    context.Context // of the caller
	io     context.Context // ends if the caller gives up, not at the limit
	over   func()

	owner, request string
	began          time.Time
	// When waiting ends. Zero: never.
	ends  time.Time
	waits bool
	// When a server answered last.
	heard time.Time
	// The last failure.
	cause error
	// A command was sent whose reply was not read.
	unread bool
	// A wait was sent again although its connection had not ended.
	moved bool
	// Connections of waits that were given up, until the server has closed them.
	parted []*conn
	// Owners that may have been granted the lock, and do not want it.
	debts []string
	// A renewal of the grant got no answer: it may still be executed.
	isRenewalOpen bool
	// It has a place at the gate, and keeps it also while it repeats: behind the others it would block those ahead of it, if
	// the grant that it has not read is in their way.
	inside bool
	// The session that keeps the lock, on the server that was asked last. Nil: none does, or none was asked.
	bound *binding
}

// grant is what the server has answered.
type grant struct {
	token int64
	// The number of the place in a semaphore. -1: none was asked for.
	slot int
	// When the command was sent.
	sent time.Time
}

func newAttempt(ctx context.Context, c *Client, t target, terms terms) *attempt {
	now := time.Now()
	a := &attempt{
		client: c, target: t, terms: terms, ctx: ctx,
		owner: newOwner(terms.label), request: "1", began: now, heard: now, waits: !terms.limited || terms.wait > 0,
	}
	if terms.limited {
		a.ends = now.Add(terms.wait)
	}
	if deadline, ok := ctx.Deadline(); ok && (a.ends.IsZero() || deadline.Before(a.ends)) {
		a.ends = deadline
	}
	if !a.waits {
		a.ends = now.Add(defaultAnswer)
		if deadline, ok := ctx.Deadline(); ok {
			a.ends = earlier(a.ends, deadline)
		}
	}
	return a
}

// givesUp returns when it stops looking for a server.
func (a *attempt) givesUp() time.Time {
	if a.ends.IsZero() {
		return a.heard.Add(a.terms.outage)
	}
	return a.ends
}

// answerBy returns until when a connection may be made, or a command that does not wait be answered.
func (a *attempt) answerBy() time.Time {
	return earlier(time.Now().Add(step), a.givesUp().Add(late))
}

// left returns the time of waiting that is left.
func (a *attempt) left() time.Duration { return max(0, time.Until(a.ends)) }

// lock returns the lock, or the error to give to the caller.
func (a *attempt) lock() (*Lock, error) {
	for {
		g, err := a.run()
		if err != nil {
			return nil, a.explained(err)
		}
		if g == nil {
			return nil, &failure{ErrNotGranted, a.target.name, limitOf(a.ctx)}
		}
		lock, err := a.held(g)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, ErrLost) || a.io.Err() != nil {
			return nil, err
		}
		if !a.waits || !a.ends.IsZero() && a.left() == 0 {
			return nil, &failure{ErrNotGranted, a.target.name, err}
		}
		// The lease had ended before the grant was read. The next request is a new one.
		if a.unread {
			a.debts = append(a.debts, a.owner)
		}
		a.owner, a.unread = newOwner(a.terms.label), false
	}
}

// usesSession returns whether a session keeps the lock. Renewals that replicas acknowledge are sent one by one, and a
// session would keep a lock that stays, or whose work hangs.
func (a *attempt) usesSession() bool {
	t := a.terms
	return a.client.session > 0 && !t.fixed && t.replicas == 0 && t.atLeast == 0 && t.beat == 0
}

// end leaves the session, and the place at the gate.
func (a *attempt) end() {
	a.unbind()
	if a.inside {
		a.client.gates.leave(gateName(a.target.keys))
	}
}

func (a *attempt) unbind() {
	if a.bound != nil {
		a.client.sessions.leave(a.bound)
		a.bound = nil
	}
}

// held makes the lock of a grant. After a long wait it renews it first: the lease began somewhere in that time.
func (a *attempt) held(g *grant) (*Lock, error) {
	l := newLock(a, g)
	// The lease, and the earliest cap, count from the grant, which came somewhere in that time.
	proof := a.terms.lease
	if a.bound != nil && a.client.isOver() {
		proof = min(proof, a.client.session) // It is bound to the session only after this.
	}
	if time.Since(g.sent) > proof/3 {
		if err := l.confirm(a.io, later(a.answerBy(), time.Now().Add(late))); err != nil {
			l.lose(err)
			// Of several locks, some may be held.
			a.unread = !errors.Is(err, ErrLost) || len(a.target.keys) > 1
			return nil, err
		}
	}
	if a.bound != nil {
		a.client.sessions.add(a.bound, l)
	}
	return l, l.keep()
}

func (a *attempt) explained(err error) error {
	var over *canceled
	switch {
	case errors.As(err, &over):
		return fmt.Errorf("dlock: %s: %w", a.target.name, over.cause)
	case errors.Is(err, ErrUnreachable):
		return &failure{&outage{a.cause, limitOf(a.ctx)}, a.target.name, nil}
	case a.io.Err() != nil:
		return fmt.Errorf("dlock: %s: %w", a.target.name, err)
	}
	return explained(a.target.name, err)
}

// run repeats after a lost connection, for as long as it may look for a server. No grant: a server has refused it.
func (a *attempt) run() (*grant, error) {
	for tries := 0; ; tries++ {
		began := time.Now()
		g, err := a.once(tries)
		if err == nil {
			return g, nil
		}
		if a.io.Err() != nil {
			return nil, context.Cause(a.io)
		}
		if isAnswer(err) || errors.Is(err, ErrClosed) || errors.Is(err, ErrTooFewReplicas) {
			return nil, err
		}
		a.cause = err
		if time.Since(began) > longestPause {
			tries = 0 // There was a server for some time.
		}
		if pause(a.io, tries, a.givesUp()) != nil {
			return nil, unanswered(a.io, err)
		}
	}
}

func (a *attempt) once(tries int) (*grant, error) {
	if !a.waits {
		return a.try(tries > 0)
	}
	place := gateName(a.target.keys)
	if !a.inside {
		// Most locks are free. If others of this client wait for it, it is not, unless it was granted to this one before.
		if tries > 0 || !a.client.gates.isBusy(place) {
			if g, err := a.try(tries > 0); g != nil || err != nil {
				return g, err
			}
		}
		if err := a.enter(place); err != nil {
			return nil, err
		}
		a.inside = true
	}
	if !a.ends.IsZero() && a.left() == 0 {
		return a.try(tries > 0) // The answer before may be old.
	}
	return a.wait(tries > 0)
}

// enter waits until the client has a place in the queue of the server for it, or its time is over.
func (a *attempt) enter(place string) error {
	err := a.inTurn(a.client.lastHeard, 0, func(until time.Time) error {
		ctx, cancel := context.WithDeadlineCause(a.io, until, errBusy)
		defer cancel()
		return a.client.gates.enter(ctx, place)
	})
	if err == errBusy && !a.ends.IsZero() {
		return a.client.gates.enterNow(place)
	}
	return err
}

// inTurn waits for what the client has a limited number of, for as long as the attempt may, and somewhat more. Those that
// have it hear the server, and the others with them.
func (a *attempt) inTurn(lastHeard func() time.Time, more time.Duration, enter func(until time.Time) error) error {
	for {
		if a.ends.IsZero() {
			a.heard = later(a.heard, lastHeard())
		}
		err := enter(a.givesUp().Add(more))
		if err == nil {
			return nil // The caller will leave, even if it has been canceled meanwhile.
		}
		if a.io.Err() != nil {
			return &canceled{context.Cause(a.io)}
		}
		if err != errBusy || !a.ends.IsZero() || later(a.heard, lastHeard()).Equal(a.heard) {
			return err
		}
	}
}

// open returns a connection to the server that has the lock, with the function that returns it to its pool, and makes the
// next command name the session there.
func (a *attempt) open(again bool, get func(*pool) (*conn, func(), error)) (*conn, func(), error) {
	p, err := a.client.poolOf(a.io, a.target.keys[0], again, a.answerBy())
	if err != nil {
		return nil, nil, err
	}
	c, give, err := get(p)
	if err != nil {
		return nil, nil, err
	}
	if err := a.bind(p); err != nil {
		give()
		return nil, nil, err
	}
	return c, give, nil
}

// bind makes the next command name the session on a server.
func (a *attempt) bind(p *pool) error {
	a.unbind()
	if !a.usesSession() {
		return nil
	}
	b, err := a.client.sessions.join(a.io, p, earlier(a.answerBy(), a.givesUp()))
	a.bound = b
	return err
}

// take returns a connection of the pool, with a place in it.
func (a *attempt) take(p *pool) (*conn, func(), error) {
	err := a.inTurn(p.lastHeard, late, func(until time.Time) error { return enter(a.io, p.places, until) })
	if err != nil {
		return nil, nil, err
	}
	c, err := p.take(a.io, a.answerBy())
	if err != nil {
		p.exit()
		return nil, nil, err
	}
	return c, func() { p.give(c); p.exit() }, nil
}

// try asks once, without waiting.
func (a *attempt) try(again bool) (*grant, error) {
	c, give, err := a.open(again, a.take)
	if err != nil {
		return nil, err
	}
	defer give()
	sent := time.Now()
	a.unread = true
	replies, err := c.exchange(a.io, a.answerBy(), a.target.releaseAll(a.owner), a.command(""))
	if err != nil {
		a.forsake(c, err)
		return nil, err
	}
	if !isStarting(replies[0]) {
		c.pool.hears()
	}
	g, err := a.read(replies[0], sent)
	if g == nil || err != nil {
		return nil, err
	}
	return g, a.confirm(c, g, false)
}

var errNoSession = errors.New("the session of the client has ended")

// forsake leaves an owner behind whose command may be executed later. The releases behind it undo that.
func (a *attempt) forsake(c *conn, err error) {
	if a.io.Err() == nil {
		c.pool.distrust()
	}
	if isSilence(err) {
		a.debts = append(a.debts, a.owner)
		a.owner, a.unread = newOwner(a.terms.label), false
	}
}

// command returns the acquiring command. `block` is empty if it does not wait.
func (a *attempt) command(block string) command {
	options := []string{"PX", millis(a.terms.lease), "REQUEST", a.request}
	if a.bound != nil && !a.client.isOver() {
		options = append(options, "SESSIONID", a.bound.id)
	}
	if a.terms.maxHold > 0 {
		options = append(options, "MAXHOLD", millis(a.terms.maxHold))
	}
	if block != "" {
		options = append(options, "BLOCK", block)
	}
	return a.target.acquire(a.owner, options...)
}

// read takes the reply to an acquiring command. No grant: it is refused.
func (a *attempt) read(reply any, sent time.Time) (*grant, error) {
	if answer, ok := reply.(ServerError); ok {
		if err := a.client.repeatable(a.target.keys[0], []any{answer}); err != nil {
			return nil, err
		}
		a.heard = time.Now()
		if answer.Code() == "NOSESSION" && a.bound != nil {
			a.client.sessions.ended(a.bound)
			return nil, errNoSession
		}
		// The outcome of a wait that was ended by hand is unknown.
		a.unread = answer.Code() == "UNBLOCKED"
		return nil, answer
	}
	a.client.hears()
	a.heard = time.Now()
	a.unread = false
	switch value := reply.(type) {
	case nil:
		return nil, nil
	case int64:
		a.unread = true // until there is a lock that knows the token
		return &grant{token: value, slot: -1, sent: sent}, nil
	case []any:
		if g := withSlot(value, sent); g != nil {
			a.unread = true
			return g, nil
		}
	}
	a.unread = true
	return nil, errProtocol
}

// withSlot reads the reply [token, slot]. Nil: it is another one.
func withSlot(reply []any, sent time.Time) *grant {
	if len(reply) != 2 {
		return nil
	}
	token, isToken := reply[0].(int64)
	slot, isSlot := reply[1].(int64)
	if !isToken || !isSlot {
		return nil
	}
	return &grant{token: token, slot: int(slot), sent: sent}
}

// settle releases behind the caller what its owners may have been granted.
func (a *attempt) settle() {
	if len(a.debts) == 0 {
		for _, each := range a.parted {
			each.close()
		}
		return
	}
	var commands []command
	for _, owner := range a.debts {
		if a.client.isOver() {
			// The wait may go on, on a connection that cannot be closed. This takes over its place, and ends at once.
			commands = append(commands, a.target.acquire(owner, "PX", millis(shortestLease), "REQUEST", a.request, "BLOCK", "1"))
		}
		commands = append(commands, a.target.releaseAll(owner)...)
	}
	c, key, kept, parted := a.client, a.target.keys[0], a.usesSession(), a.parted
	c.behind(func() {
		until := time.Now().Add(step)
		for _, each := range parted {
			each.awaitEnd(c.last, until)
		}
		// A server that has closed a connection grants nothing to it any more.
		c.releaseBehind(key, commands, kept)
	})
}
