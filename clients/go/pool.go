package dlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An idle connection is not used after this time: a server or a firewall may have forgotten it.
const longestIdle = 4 * time.Minute

// pool has the connections to one server. At most `size` exchanges run on them at once. Beside that number, waits have
// connections of their own, of which at most `size` are made at once, and the heartbeats of the session have one.
type pool struct {
	profile *profile
	address string
	places  chan struct{}
	making  chan struct{}
	// When the server answered last, in nanoseconds since the pool began.
	began time.Time
	heard atomic.Int64

	mu     sync.Mutex
	idle   []*conn
	open   map[*conn]struct{}
	closed bool
	// When a wait got no connection last, and why.
	failed  time.Time
	failure error
}

func newPool(profile *profile, address string, size int) *pool {
	return &pool{
		profile: profile, address: address, places: make(chan struct{}, size), making: make(chan struct{}, size),
		began: time.Now(), open: map[*conn]struct{}{},
	}
}

// exchange sends commands on a connection of the pool, and returns the replies. It waits for a place until `until`,
// and then for a connection and the replies, at most for `answer`.
func (p *pool) exchange(ctx context.Context, until time.Time, answer time.Duration, commands ...command) ([]any, error) {
	if err := enter(ctx, p.places, until); err != nil {
		return nil, &unsent{err}
	}
	defer p.exit()
	until = earlier(until, time.Now().Add(answer))
	c, err := p.take(ctx, until)
	if err != nil {
		return nil, &unsent{err}
	}
	defer p.give(c)
	replies, err := c.exchange(ctx, until, nil, commands...)
	if err != nil {
		if ctx.Err() == nil {
			p.distrust()
		}
		return nil, err
	}
	if !slices.ContainsFunc(replies, isNoAnswer) {
		p.hears()
	}
	return replies, nil
}

// enter takes one of some places, in order.
func enter(ctx context.Context, places chan struct{}, until time.Time) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pool) exit() { <-p.places }

func (p *pool) hears() { p.heard.Store(int64(time.Since(p.began))) }

// lastHeard returns when the server answered last, or when the pool began if it has not answered yet.
func (p *pool) lastHeard() time.Time { return p.began.Add(time.Duration(p.heard.Load())) }

// take returns an idle connection, or makes one.
func (p *pool) take(ctx context.Context, until time.Time) (*conn, error) {
	if c := p.pop(); c != nil {
		return c, nil
	}
	return p.make(ctx, until)
}

// makeToWait returns a new connection that takes no place, for a caller that has queued for `making` since `queued`. If no
// connection can be made, all callers that queued before the failure get its error at once. Otherwise, thousands of waits
// whose server dies would fail one after the other.
func (p *pool) makeToWait(ctx context.Context, queued, until time.Time) (*conn, error) {
	p.mu.Lock()
	failed, failure := p.failed, p.failure
	p.mu.Unlock()
	if failed.After(queued) {
		return nil, failure
	}
	c, err := p.make(ctx, until)
	if err != nil && ctx.Err() == nil && time.Now().Before(until) {
		p.mu.Lock()
		p.failed, p.failure = time.Now(), err
		p.mu.Unlock()
	}
	return c, err
}

// pop returns the connection that was used last, or nil.
func (p *pool) pop() *conn {
	p.mu.Lock()
	last := len(p.idle) - 1
	if last < 0 {
		p.mu.Unlock()
		return nil
	}
	c := p.idle[last]
	if !c.isStale() {
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return c
	}
	p.mu.Unlock()
	p.distrust() // The others are older.
	return nil
}

// make returns a new connection.
func (p *pool) make(ctx context.Context, until time.Time) (*conn, error) {
	c, err := p.profile.connect(ctx, p.address, until)
	if err != nil {
		return nil, fmt.Errorf("no connection to %s: %w", p.address, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.close()
		return nil, ErrClosed
	}
	p.open[c] = struct{}{}
	c.pool = p
	return c, nil
}

func (p *pool) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// give takes a connection back. It keeps one that is clean and not lent. If the server is a replica now, a new connection to
// the same address may lead to the primary.
func (p *pool) give(c *conn) {
	if c.leaving {
		return
	}
	if c.isReplica {
		p.distrust()
	}
	p.mu.Lock()
	keep := c.isClean() && !c.isLent() && !p.closed && len(p.idle) < cap(p.places)
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// distrust closes the idle connections, because one has turned out to be broken.
func (p *pool) distrust() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.idle = nil
	open := make([]*conn, 0, len(p.open))
	for c := range p.open {
		open = append(open, c)
	}
	p.mu.Unlock()
	for _, c := range open {
		c.close()
	}
}
