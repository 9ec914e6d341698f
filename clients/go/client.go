package dlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Client acquires locks on a server, on the primary that Sentinels name, or in a cluster. It connects when it needs to,
// so that [New] never waits.
type Client struct {
	settings
	router router
	gates  gates
	// Unused if settings.session is 0.
	sessions sessions

	began time.Time
	// When a server answered last, in nanoseconds since `began`.
	heard atomic.Int64

	// Ends waiting acquisitions and renewals. [Client.Close] cancels it first.
	ctx context.Context
	end context.CancelCauseFunc
	// Ends the sessions, which then release the locks that they keep. Canceled when the other locks have been released.
	beating    context.Context
	stopToBeat context.CancelCauseFunc
	// Ends releases in the background and the closing of sessions: a second after `beating`, at the latest.
	last context.Context
	stop context.CancelCauseFunc
	// All that goes on: acquisitions, releases, and what runs in the background.
	work sync.WaitGroup
	// The releases among these.
	releases sync.WaitGroup

	mu     sync.Mutex
	pools  map[string]*pool
	held   map[*Lock]struct{}
	closed bool
}

// router knows which server has a key.
type router interface {
	// find returns its address. With `again`, it does not trust what it has learned before.
	find(ctx context.Context, key string, again bool, until time.Time) (string, error)
	// redirect is told what a server has answered about a key.
	redirect(key string, answer ServerError)
}

// New returns a client for the server at an address: "host:port", or a URL "redis://user:password@host:port/database".
// "rediss://" encrypts the connections, and "unix:///run/dlock.sock" is a socket. It does not connect yet.
func New(address string, options ...ClientOption) (*Client, error) {
	s, host, err := parse(address, options)
	if err != nil {
		return nil, err
	}
	return newClient(s, fixed(host))
}

// Format writes the type only: with each verb of package fmt, the fields would show the password.
func (c *Client) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, "dlock.Client")
}

func newClient(s settings, r router) (*Client, error) {
	if _, asks := r.(*sentinel); !asks && (s.sentinelUser != "" || s.sentinelPassword != "") {
		return nil, errors.New("dlock: only NewSentinel logs in at Sentinels")
	}
	ctx, end := context.WithCancelCause(context.Background())
	beating, stopToBeat := context.WithCancelCause(context.Background())
	last, stop := context.WithCancelCause(context.Background())
	c := &Client{
		settings: s, router: r, began: time.Now(), ctx: ctx, end: end, last: last, stop: stop,
		beating: beating, stopToBeat: stopToBeat,
		gates: gates{size: s.waiters}, pools: map[string]*pool{}, held: map[*Lock]struct{}{},
	}
	c.profile.last = last
	c.sessions = sessions{client: c, time: s.session, homes: map[string]*home{}}
	return c, nil
}

// fixed is the router for one server.
type fixed string

func (f fixed) find(context.Context, string, bool, time.Time) (string, error) { return string(f), nil }
func (f fixed) redirect(string, ServerError)                                  {}

// terms returns the options of an acquisition.
func (s *settings) terms(options []Option) (terms, error) {
	t := terms{lease: defaultLease, outage: defaultOutage, permits: 1}
	for _, option := range append(s.defaults[:len(s.defaults):len(s.defaults)], options...) {
		option(&t)
	}
	t.settle()
	return t, t.check()
}

// Close ends the client: it releases the locks that it still holds, as far as the server answers within a second, ends
// what goes on in the background, and closes the connections. Waiting acquisitions end with [ErrClosed]. If a request got
// no answer a moment ago, Close stays for up to a second, to release what a late copy of the request may take.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	held := make([]*Lock, 0, len(c.held))
	for lock := range c.held {
		held = append(held, lock)
	}
	c.mu.Unlock()
	rest := c.endKept(held)
	c.end(ErrClosed)
	c.releaseAll(rest)
	c.stopToBeat(ErrClosed)
	ending := time.AfterFunc(defaultAnswer, func() { c.stop(ErrClosed) })
	c.work.Wait()
	ending.Stop()
	c.stop(ErrClosed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range c.pools {
		each.close()
	}
	return nil
}

// endKept ends the locks that their sessions will release, and returns the others. A late copy of a request that names no
// session (`named`) outlasts the session.
func (c *Client) endKept(locks []*Lock) []*Lock {
	var rest []*Lock
	for _, lock := range locks {
		if lock.isOpen && c.borrows() || !c.sessions.keeps(lock) || !lock.endWithSession() {
			rest = append(rest, lock)
		}
	}
	return rest
}

// releaseAll releases locks, and waits for the releases that have begun before, for a second in all.
func (c *Client) releaseAll(locks []*Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), defaultAnswer)
	defer cancel()
	queue := make(chan *Lock, len(locks))
	for _, lock := range locks {
		queue <- lock
	}
	close(queue)
	for range min(c.pool, len(locks)) {
		c.releases.Add(1)
		go func() {
			defer c.releases.Done()
			for lock := range queue {
				lock.unlock(ctx) // If this fails, the hold ends with its lease.
			}
		}()
	}
	released := make(chan struct{})
	c.behind(func() {
		c.releases.Wait()
		close(released)
	})
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// begins says that something goes on, for which [Client.Close] waits. False: the client is closed.
func (c *Client) begins() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Add(1)
	}
	return !c.closed
}

// beginsRelease does the same for a release: [Client.Close] waits for releases, for up to a second, before it ends the
// sessions.
func (c *Client) beginsRelease() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Add(1)
		c.releases.Add(1)
	}
	return !c.closed
}

// behind runs a task in the background. Its caller is counted in `work`, or is [Client.Close], which waits
// for `work` afterwards.
func (c *Client) behind(task func()) {
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		task()
	}()
}

// untilCanceled returns a context that ends when ctx is canceled or the client is closed, but not at the deadline of
// ctx.
func (c *Client) untilCanceled(ctx context.Context) (context.Context, func()) {
	joined, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCaller := context.AfterFunc(ctx, func() {
		if isCanceled(ctx) {
			cancel(context.Cause(ctx))
		}
	})
	stopClient := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return joined, func() {
		stopCaller()
		stopClient()
		cancel(nil)
	}
}

func (c *Client) hears() { c.heard.Store(int64(time.Since(c.began))) }

// lastHeard returns when a server answered last.
func (c *Client) lastHeard() time.Time { return c.began.Add(time.Duration(c.heard.Load())) }

// poolOf returns the connections to the server that has a key.
func (c *Client) poolOf(ctx context.Context, key string, again bool, until time.Time) (*pool, error) {
	address, err := c.router.find(ctx, key, again, until)
	if err != nil {
		return nil, err
	}
	return c.poolAt(address)
}

func (c *Client) poolAt(address string) (*pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.Err() != nil {
		return nil, ErrClosed
	}
	p := c.pools[address]
	if p == nil {
		p = newPool(&c.profile, address, c.pool)
		c.pools[address] = p
	}
	return p, nil
}

// once sends commands to the server that has a key. It waits for a place in the pool of that server until `until`, and
// for the replies at most for `answer`. An error is one of the connection, or an answer that begs to be repeated; other
// answers are among the replies.
func (c *Client) once(
	ctx context.Context, key string, again bool, until time.Time, answer time.Duration, commands ...command,
) ([]any, error) {
	p, err := c.poolOf(ctx, key, again, earlier(until, time.Now().Add(step)))
	if err != nil {
		return nil, &unsent{err}
	}
	replies, err := p.exchange(ctx, until, answer, commands...)
	if err != nil {
		return nil, err
	}
	return replies, c.repeatable(key, replies)
}

// repeatable returns an answer that says: not here, or not now.
func (c *Client) repeatable(key string, replies []any) error {
	for _, reply := range replies {
		if answer, ok := reply.(ServerError); ok && answer.mayRepeat() {
			c.router.redirect(key, answer)
			return answer
		}
	}
	c.hears()
	return nil
}

// ask sends commands that may be repeated, until a server answers. It also returns how often they were sent, and may
// have been executed, without an answer that was read.
func (c *Client) ask(ctx context.Context, key string, until time.Time, commands ...command) ([]any, int, error) {
	unread := 0
	for tries := 0; ; tries++ {
		replies, err := c.once(ctx, key, tries > 0, until, step, commands...)
		if err == nil {
			return replies, unread, firstError(replies)
		}
		if isUnread(err) {
			unread++
		}
		if isAnswer(err) || errors.Is(err, ErrClosed) {
			return nil, unread, err
		}
		if pauseErr := pause(ctx, tries, until); pauseErr != nil {
			return nil, unread, unanswered(ctx, err)
		}
	}
}

// unanswered returns why there is no answer: the caller has given up, or what went wrong last.
func unanswered(ctx context.Context, last error) error {
	if isCanceled(ctx) {
		return context.Cause(ctx)
	}
	return &outage{last, limitOf(ctx)}
}

// outage is ErrUnreachable with its cause.
type outage struct{ cause, limit error }

func (o *outage) Error() string { return ErrUnreachable.Error() + ": " + o.cause.Error() }

func (o *outage) Unwrap() []error {
	if o.limit == nil {
		return []error{ErrUnreachable, o.cause}
	}
	return []error{ErrUnreachable, o.limit, o.cause}
}

// The longest pause between two attempts.
const longestPause = 250 * time.Millisecond

// A key of another type is asked for again after the pause that follows this many failures: 100 to 200 ms.
const foreignPause = 3

var (
	errOver = errors.New("the time is over")
	errBusy = errors.New("the connections of the client are all busy")
)

// backoff returns a pause that grows with the failures, at random between half of it and all: many that failed together
// do not try again together.
func backoff(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	longest := min(25*time.Millisecond<<min(tries, 4), longestPause)
	return longest/2 + rand.N(longest/2)
}

// pause waits before the next attempt, not at all before the second one. It fails if the time is over.
func pause(ctx context.Context, tries int, until time.Time) error {
	if tries == 0 && time.Now().Before(until) {
		return ctx.Err()
	}
	timer := time.NewTimer(min(backoff(tries), max(0, time.Until(until))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !time.Now().Before(until) {
		return errOver
	}
	return nil
}
