package dlock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An idle connection is not used after this time: a server or a firewall may have forgotten it.
const longestIdle = 4 * time.Minute

// pool has the connections to one server. At most `size` exchanges run on them at once; waits have connections of their
// own, beside that number.
type pool struct {
	access  *access
	address string
	slots   chan struct{}

	mu     sync.Mutex
	idle   []*conn
	open   map[*conn]struct{}
	closed bool
}

func newPool(access *access, address string, size int) *pool {
	return &pool{access: access, address: address, slots: make(chan struct{}, size), open: map[*conn]struct{}{}}
}

// exchange sends commands on a connection of the pool, and returns the replies. If they do not come, it sends `undo`
// behind the commands.
func (p *pool) exchange(ctx context.Context, until time.Time, undo []command, commands ...command) ([]any, error) {
	if err := p.enter(ctx, until); err != nil {
		return nil, err
	}
	defer p.exit()
	c, err := p.take(ctx, until)
	if err != nil {
		return nil, err
	}
	defer p.give(c)
	return c.exchange(ctx, until, undo, commands...)
}

// enter waits for one of the places, in order.
func (p *pool) enter(ctx context.Context, until time.Time) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("the connections to %s are all busy", p.address)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pool) exit() { <-p.slots }

// take returns an idle connection, or makes one.
func (p *pool) take(ctx context.Context, until time.Time) (*conn, error) {
	for {
		c := p.pop()
		if c == nil {
			return p.make(ctx, until)
		}
		if time.Since(c.used) < longestIdle {
			return c, nil
		}
		c.close()
	}
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle = p.idle[:last]
	return c
}

// make returns a new connection.
func (p *pool) make(ctx context.Context, until time.Time) (*conn, error) {
	c, err := p.access.connect(ctx, p.address, until)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.close()
		return nil, ErrClosed
	}
	p.open[c] = struct{}{}
	c.onClose = func() { p.forget(c) }
	return c, nil
}

func (p *pool) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// give takes a connection back. It keeps one that is clean.
func (p *pool) give(c *conn) {
	p.mu.Lock()
	keep := c.isClean() && !p.closed && len(p.idle) < cap(p.slots)
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
