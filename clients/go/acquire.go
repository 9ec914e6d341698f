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
// both are [context.DeadlineExceeded], too. If ctx is canceled, the error is the cause of the cancellation.
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
	if t.before[0] != "DLOCK.SACQUIRE" && isForSemaphores(options) {
		return nil, fmt.Errorf("dlock: %s: only a semaphore has permits and slots", t.name)
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
	a := newAcquisition(ctx, c, t, terms)
	a.io, a.uncancel = c.untilCanceled(ctx)
	defer a.uncancel()
	defer a.end()
	lock, err := a.lock()
	a.settle()
	return lock, err
}

// isForSemaphores returns whether options name permits or a slot. As defaults of a client, they are for its semaphores.
func isForSemaphores(options []Option) bool {
	t := terms{permits: 1}
	for _, option := range options {
		option(&t)
	}
	return t.permits != 1 || t.slot
}

// acquisition carries out an attempt: it sends what the attempt decides, and tells it the answers.
type acquisition struct {
	attempt
	client   *Client
	target   target
	terms    terms
	ctx      context.Context // of the caller
	io       context.Context // ends if the caller gives up, not at the limit
	uncancel func()

	owner, request string
	// The grant.
	token int64
	slot  int
	// When the cap of the grant ends it, if that is known.
	cap time.Time
	// The session that the grant is bound to, as far as the server has said.
	under *opening
	// The last failure; errOver before the first one.
	cause error
	// The server's last answer, if the key has another type.
	foreign error
	// Connections of waits that were given up, until the server has closed them.
	parted []*conn
	// Owners that may have been granted the lock, and do not want it.
	debts []string
	// A renewal of the grant got no answer: it may still be executed.
	isRenewalOpen bool
	// The request has a place at the gate, and keeps it while it repeats. A grant that it has not read may be in the way
	// of the others, so it must not queue behind them.
	inside bool
	// The session that keeps the lock, on the server that was asked last. Nil: none does, or none was asked.
	bound *seat
}

func newAcquisition(ctx context.Context, c *Client, t target, terms terms) *acquisition {
	now := time.Now()
	deadline, _ := ctx.Deadline()
	return &acquisition{
		attempt: newAttempt(now, limitsFrom(now, terms, deadline), terms.lease),
		client:  c, target: t, terms: terms, ctx: ctx, owner: newOwner(terms.label), request: "1",
		cause: errOver,
	}
}

// lock returns the lock, or the error to give to the caller.
func (a *acquisition) lock() (*Lock, error) {
	next := a.again()
	for failures := 0; next.do < endsGranted; { // Smaller values send something; the others are ends.
		if next.fresh {
			a.renewsOwner()
		}
		began := time.Now()
		var failure error
		switch next.do {
		case confirms:
			next, failure = a.confirm(failures > 0)
		default:
			next, failure = a.ask(next, failures > 0)
		}
		if failure == nil {
			failures = 0
			if a.foreign != nil && next.do < endsGranted {
				next = a.pauses(next, foreignPause)
			}
			continue
		}
		a.cause = failure
		if time.Since(began) > longestPause {
			failures = 0 // A server was there for some time.
		}
		if next.do < endsGranted {
			next = a.pauses(next, failures)
		}
		failures++
	}
	return a.outcome(next)
}

// pauses waits before what failed is sent again.
func (a *acquisition) pauses(next turn, failures int) turn {
	err := pause(a.io, failures, a.givesUp(a.heard))
	switch {
	case a.io.Err() != nil:
		return a.canceled()
	case err != nil:
		return a.over(time.Now())
	}
	return next
}

// outcome returns the lock, or the error to give to the caller.
func (a *acquisition) outcome(last turn) (*Lock, error) {
	if last.cleanup == releases || len(a.copies) > 0 && last.cleanup == leaves {
		a.debts = append(a.debts, a.owner)
	}
	name := a.target.name
	switch last.do {
	case endsGranted:
		lock, err := a.held()
		if err != nil {
			a.debts = append(a.debts, a.owner)
		}
		return lock, err
	case endsRefused:
		return nil, &failure{ErrNotGranted, name, a.whyNot()}
	case endsCanceled:
		return nil, fmt.Errorf("dlock: %s: %w", name, context.Cause(a.io))
	case endsUnreachable:
		return nil, &failure{&outage{a.cause, limitOf(a.ctx)}, name, nil}
	}
	return nil, explained(name, a.cause)
}

// whyNot returns why the lock was not granted, if there is more to say than that another owner has it.
func (a *acquisition) whyNot() error {
	limit := limitOf(a.ctx)
	if a.foreign == nil {
		return limit
	}
	return &foreign{a.foreign, limit}
}

// renewsOwner makes the next request a new one.
func (a *acquisition) renewsOwner() {
	a.owner = newOwner(a.terms.label)
	a.under, a.cap, a.isRenewalOpen = nil, time.Time{}, false
}

// forsake leaves an owner behind whose command may be executed later. The releases that settle sends undo that.
func (a *acquisition) forsake() {
	a.debts = append(a.debts, a.owner)
	a.forsakes()
	a.renewsOwner()
}

// usesSession returns whether a session keeps the lock. It does not if nothing renews the lock, and not if replicas
// acknowledge each renewal. It would also keep a lock that stays for a time, or whose work hangs (`beat`).
func (a *acquisition) usesSession() bool {
	t := a.terms
	return a.client.session > 0 && !t.fixed && t.replicas == 0 && t.atLeast == 0 && t.beat == 0
}

// end leaves the session, and the place at the gate.
func (a *acquisition) end() {
	a.unbind()
	if a.inside {
		a.client.gates.leave(gateName(a.target.keys))
	}
}

func (a *acquisition) unbind() {
	if a.bound != nil {
		a.client.sessions.leave(a.bound)
		a.bound = nil
	}
}

// ask sends the acquiring command, as the attempt says: without waiting, or to wait in the queue.
func (a *acquisition) ask(next turn, again bool) (turn, error) {
	if a.isTry {
		return a.try(again)
	}
	place := gateName(a.target.keys)
	// Most locks are free, so the first request does not wait. A lock that others of this client wait for is not free,
	// unless an earlier copy of this request has got it.
	if next.do == tries && (a.inside || again || !a.client.gates.isBusy(place)) {
		return a.try(again)
	}
	if !a.inside {
		if err := a.enter(place); err != nil {
			if a.io.Err() != nil {
				return a.canceled(), err
			}
			return a.over(time.Now()), err
		}
		a.inside = true
	}
	if a.left(time.Now()) == 0 {
		return a.try(again) // The time is over: asks once more, because an earlier refusal may be old.
	}
	return a.wait(again)
}

// enter waits until one of the client's places in the queue of the server is free, or the time is over. After the end
// of its wait, the request asks once more without waiting, for which it needs no free place.
func (a *acquisition) enter(place string) error {
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

// inTurn waits for a place, of which the client has a limited number, until `more` after the attempt gives up.
// An answer of the server to a request that has a place counts as heard by those that wait for one.
func (a *acquisition) inTurn(lastHeard func() time.Time, more time.Duration, enter func(until time.Time) error) error {
	for {
		if a.ends.IsZero() {
			a.hears(lastHeard())
		}
		err := enter(a.givesUp(a.heard).Add(more))
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

// answerBy returns until when a connection may be made, or a command that does not wait be answered.
func (a *acquisition) answerBy() time.Time { return a.limits.answerBy(time.Now(), a.heard) }

// open returns a connection to the server that has the lock, with the function that returns it to its pool, and makes the
// next command name the session there.
func (a *acquisition) open(again bool, get func(*pool) (*conn, func(), error)) (*conn, func(), error) {
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
func (a *acquisition) bind(p *pool) error {
	a.unbind()
	if !a.usesSession() {
		return nil
	}
	b, err := a.client.sessions.join(a.io, p, earlier(a.answerBy(), a.givesUp(a.heard)))
	a.bound = b
	return err
}

// named returns the session that commands name. Nil: none. On connections of another client the session binds the hold
// afterwards.
func (a *acquisition) named() *seat {
	if a.client.borrows() {
		return nil
	}
	return a.bound
}

// take returns a connection of the pool, with a place in it.
func (a *acquisition) take(p *pool) (*conn, func(), error) {
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
func (a *acquisition) try(again bool) (turn, error) {
	c, give, err := a.open(again, a.take)
	if err != nil {
		return a.unsent(err)
	}
	defer give()
	number := a.sends(time.Now())
	replies, err := c.exchange(a.io, a.answerBy(), a.target.releaseAll(a.owner), a.command(""))
	if err != nil {
		if a.io.Err() == nil {
			c.pool.distrust()
		}
		if isSilence(err) {
			a.forsake()
		}
		return a.unread(err)
	}
	if !isNoAnswer(replies[0]) {
		c.pool.hears()
	}
	return a.read(c, number, replies[0], false)
}

// unsent says that nothing was sent.
func (a *acquisition) unsent(err error) (turn, error) {
	switch {
	case a.io.Err() != nil:
		return a.canceled(), err
	case isAnswer(err), errors.Is(err, ErrClosed):
		a.cause = err
		return a.failed(0), err
	}
	return a.repeats(time.Now()), err
}

// unread says that what was sent has no answer.
func (a *acquisition) unread(err error) (turn, error) {
	if a.io.Err() != nil {
		return a.canceled(), err
	}
	return a.cut(time.Now()), err
}

// command returns the acquiring command. `block` is empty if it does not wait.
func (a *acquisition) command(block string) command {
	options := []string{"PX", millis(a.terms.lease), "REQUEST", a.request}
	if at := a.named(); at != nil {
		options = append(options, "SESSIONID", at.id)
	}
	if a.terms.maxHold > 0 {
		options = append(options, "MAXHOLD", millis(a.terms.maxHold))
	}
	if block != "" {
		options = append(options, "BLOCK", block)
	}
	return a.target.acquire(a.owner, options...)
}

var errNoSession = errors.New("the session of the client has ended")

// read takes the reply to an acquiring command.
func (a *acquisition) read(c *conn, number int, reply any, waited bool) (turn, error) {
	now := time.Now()
	a.foreign = nil
	if answer, ok := reply.(ServerError); ok {
		return a.answeredError(now, number, answer)
	}
	a.client.hears()
	if reply == nil {
		return a.nil(now, number, waited), nil
	}
	token, slot, ok := granted(reply)
	if !ok {
		return a.cut(now), errProtocol
	}
	a.token, a.slot = token, slot
	switch err := a.acknowledged(c, waited); {
	case err == nil:
	case errors.Is(err, errNoHold):
		return a.vanished(), err
	case isAnswer(err) || errors.Is(err, ErrTooFewReplicas):
		a.cause = err
		return a.failed(0), err // 0: the copy counts as unanswered, so that its grant is released.
	default:
		// The lock was granted, but no answer about the replicas came.
		return a.unread(err)
	}
	isDoubted := false
	if at := a.named(); at != nil {
		a.under, isDoubted = at.opening, !a.client.sessions.isFresh(at)
	}
	return a.granted(time.Now(), number, isDoubted), nil
}

// answeredError takes an error that the server answered.
func (a *acquisition) answeredError(now time.Time, number int, answer ServerError) (turn, error) {
	if err := a.client.repeatable(a.target.keys[0], []any{answer}); err != nil {
		if answer.isOpen() {
			return a.cut(now), err
		}
		return a.refused(now, number), err
	}
	a.answered(now)
	if answer.Code() == "NOSESSION" && a.bound != nil {
		a.client.sessions.ended(a.bound)
		return a.refused(now, number), errNoSession
	}
	if answer.Code() == "WRONGTYPE" { // A program without dlock has the lock, and there is no queue: it is asked again.
		a.foreign = answer
		return a.nil(now, number, false), nil
	}
	a.cause = answer
	if answer.Code() == "UNBLOCKED" { // A wait that was ended by hand: the outcome is unknown.
		number = 0 // The copy counts as unanswered.
	}
	return a.failed(number), answer
}

// granted reads the reply to a grant: a token, or [token, slot]. The slot is -1 if none was asked for.
func granted(reply any) (token int64, slot int, ok bool) {
	switch value := reply.(type) {
	case int64:
		return value, -1, true
	case []any:
		if len(value) != 2 {
			break
		}
		token, isToken := value[0].(int64)
		slot, isSlot := value[1].(int64)
		return token, int(slot), isToken && isSlot
	}
	return 0, -1, false
}

// settle releases in the background what the owners of the acquisition may have been granted.
func (a *acquisition) settle() {
	if len(a.debts) == 0 {
		for _, each := range a.parted {
			each.close()
		}
		return
	}
	var commands []command
	for _, owner := range a.debts {
		if a.client.borrows() {
			// The wait may go on, on a connection that cannot be closed. This command takes over its place, and ends at once.
			commands = append(commands, a.target.acquire(owner, "PX", millis(shortestLease), "REQUEST", a.request, "BLOCK", "1"))
		}
		commands = append(commands, a.target.releaseAll(owner)...)
	}
	c, key, kept, parted, strays := a.client, a.target.keys[0], a.usesSession(), a.parted, a.strays()
	c.behind(func() {
		until := time.Now().Add(step)
		for _, each := range parted {
			// A server that has closed a connection grants nothing to it any more.
			if each.awaitEnd(c.last, until) {
				strays--
			}
		}
		if !c.releaseBehind(key, commands, kept) && strays > 0 {
			c.releaseLate(key, commands, kept, time.Time{})
		}
	})
}
