package dlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"
)

// Holder is who holds a lock.
type Holder struct {
	Owner string
	Token int64
	// When the lock was granted, by the server's clock. The token contains it.
	Since time.Time
}

const (
	// A watch asks at least this often, so that it notices a connection that is dead.
	watchEvery = 10 * time.Second
	// How long a reply to a watch may take.
	watchAnswer = 5 * time.Second
	// The pauses after a connection of a watch broke, and after an election found no server.
	watchPause = 50 * time.Millisecond
	electPause = time.Second
)

// Holder returns who holds a lock now; of several, the one with the lowest token. Nil: it is free.
func (c *Client) Holder(ctx context.Context, name string) (*Holder, error) {
	if err := one("", name).check(); err != nil {
		return nil, err
	}
	until := time.Now().Add(defaultAnswer)
	if deadline, ok := ctx.Deadline(); ok {
		until = earlier(until, deadline)
	}
	replies, _, err := c.ask(ctx, name, until, holderOf(name))
	if err != nil {
		return nil, explained(name, err)
	}
	holder, _ := readHolder(replies[0])
	return holder, nil
}

func holderOf(name string) command { return command{"DLOCK.INFO", name, "FULL", "COUNT", "1"} }

// readHolder returns the time to ask again, too: a lease may end without a word of the server.
func readHolder(reply any) (*Holder, time.Duration) {
	holds, _ := field(reply, "holds").([]any)
	if len(holds) == 0 {
		return nil, watchEvery
	}
	owner, _ := field(holds[0], "owner").(string)
	token, _ := field(holds[0], "token").(int64)
	ttl, _ := field(reply, "ttl").(int64)
	next := min(watchEvery, time.Duration(ttl+1)*time.Millisecond)
	return &Holder{Owner: owner, Token: token, Since: time.UnixMicro(token)}, next
}

// field returns a value of a map.
func field(reply any, name string) any {
	pairs, _ := reply.([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == name {
			return pairs[i+1]
		}
	}
	return nil
}

// Watch yields the holder of a lock, and then each change of it, until ctx ends. A nil holder: the lock is free. The
// server reports changes (CLIENT TRACKING), so nothing polls. It uses a connection of its own, and outlives outages. An
// error is what the server has answered, and the last that it yields.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[*Holder, error] {
	return func(yield func(*Holder, error) bool) {
		if err := one("", name).check(); err != nil {
			yield(nil, err)
			return
		}
		if c.borrows() {
			yield(nil, errNoReports)
			return
		}
		w := &observer{client: c, name: name, yield: yield, known: -1}
		if !w.begins() {
			yield(nil, &failure{ErrClosed, name, nil})
			return
		}
		defer w.ends()
		io, over := c.untilCanceled(ctx)
		defer over()
		if deadline, ok := ctx.Deadline(); ok {
			limited, cancel := context.WithDeadline(io, deadline)
			defer cancel()
			io = limited
		}
		if err := w.run(io); err != nil && !w.ended {
			w.ends()
			yield(nil, explained(name, err))
		}
	}
}

// observer is one watch.
type observer struct {
	client *Client
	name   string
	yield  func(*Holder, error) bool
	// The token that was reported last; 0: free, -1: nothing was.
	known int64
	ended bool
	// Whether the client waits for it when it closes.
	counted bool
}

func (o *observer) begins() bool {
	o.counted = o.client.begins()
	return o.counted
}

func (o *observer) ends() {
	if o.counted {
		o.client.work.Done()
		o.counted = false
	}
}

// run returns what the server has answered, or nil if the watch is over.
func (o *observer) run(ctx context.Context) error {
	for again := false; ; again = true {
		err := o.follow(ctx, again)
		switch {
		case o.ended:
			return nil
		case !o.counted || errors.Is(context.Cause(ctx), ErrClosed):
			return ErrClosed
		case ctx.Err() != nil:
			return nil
		case isAnswer(err):
			return err
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

// follow reports the holder after each change of the key, until the connection breaks.
func (o *observer) follow(ctx context.Context, again bool) error {
	until := time.Now().Add(watchAnswer)
	p, err := o.client.poolOf(ctx, o.name, again, until)
	if err != nil {
		return err
	}
	c, err := p.make(ctx, until)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := o.ask(ctx, c, command{"HELLO", "3"}); err != nil {
		return err
	}
	if _, err := o.ask(ctx, c, command{"CLIENT", "TRACKING", "ON"}); err != nil {
		return err
	}
	for {
		reply, err := o.ask(ctx, c, holderOf(o.name))
		if err != nil {
			return err
		}
		holder, next := readHolder(reply)
		if !o.tell(holder) {
			return nil
		}
		if err := o.sleep(ctx, c, time.Now().Add(next)); err != nil {
			return err
		}
	}
}

// ask returns the reply to a command. If a change is reported meanwhile, the next sleep ends at once.
func (o *observer) ask(ctx context.Context, c *conn, question command) (any, error) {
	until := time.Now().Add(watchAnswer)
	c.SetDeadline(until)
	defer c.endsWith(ctx)()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := c.send(until, question); err != nil {
		return nil, err
	}
	for {
		reply, err := c.read()
		if err != nil {
			return nil, err
		}
		if _, isPush := reply.(push); isPush {
			c.owed++
			c.changed = true
			continue
		}
		if answer, ok := reply.(ServerError); ok {
			return nil, answer
		}
		return reply, nil
	}
}

// sleep waits until the server reports a change, or until it is time to ask again.
func (o *observer) sleep(ctx context.Context, c *conn, until time.Time) error {
	if c.changed {
		c.changed = false
		return nil
	}
	c.SetDeadline(until)
	defer c.endsWith(ctx)()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	there, err := c.answers()
	if err != nil || !there {
		return err
	}
	c.SetDeadline(time.Now().Add(watchAnswer))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err = c.next()
	return err
}

// tell reports a holder that is another one than before. False: nobody listens any more. The loop that it tells may take
// any time, and may close the client, which does not wait for it.
func (o *observer) tell(holder *Holder) bool {
	var token int64
	if holder != nil {
		token = holder.Token
	}
	if token == o.known {
		return true
	}
	o.known = token
	o.ends()
	o.ended = !o.yield(holder, nil)
	return o.begins() && !o.ended
}

// Elect makes this program the leader when its turn comes, and calls lead with a context that ends when the term ends: the
// lock is lost, or ctx ends. Then lead has to return, and Elect stands for election again, until ctx ends: then it returns
// the cause, joined with an error of lead that has another reason. If lead returns during its term, Elect gives up the
// leadership and returns what lead has returned.
//
// Pass [Lock.Token] to the resources that the leader writes to: a leader that hangs may notice too late that its term is
// over.
func (c *Client) Elect(
	ctx context.Context, name string, lead func(ctx context.Context, lock *Lock) error, options ...Option,
) error {
	for {
		lock, err := c.Lock(ctx, name, options...)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrTooFewReplicas) && !errors.Is(err, ErrNotGranted) {
				return err
			}
			select {
			case <-time.After(electPause):
			case <-ctx.Done():
			}
			continue
		}
		term, err := serve(ctx, lock, lead)
		if ctx.Err() != nil {
			return joined(ctx, err)
		}
		if term == nil {
			return err
		}
	}
}

// joined returns why ctx has ended, and what else went wrong meanwhile.
func joined(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || errors.Is(err, cause) || errors.Is(err, ctx.Err()) {
		return cause
	}
	return errors.Join(cause, err)
}

// serve leads for one term. It returns why the term has ended, if it has, and what lead has returned.
func serve(ctx context.Context, lock *Lock, lead func(context.Context, *Lock) error) (term, result error) {
	during, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	defer func() {
		term = context.Cause(during)
		stop()
		cancel(nil)
		// Without an answer, the session or the lease ends it.
		lock.Unlock(context.WithoutCancel(ctx))
	}()
	return nil, lead(during, lock)
}

// String returns the owner and the token.
func (h *Holder) String() string {
	if h == nil {
		return "free"
	}
	return fmt.Sprintf("%s, token %s", h.Owner, strconv.FormatInt(h.Token, 10))
}
