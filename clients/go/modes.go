package dlock

import (
	"context"
	"fmt"
	"strconv"
)

// RLock acquires a lock for reading: readers share it.
func (c *Client) RLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.acquire(ctx, one("DLOCK.RLOCK", name), options)
}

// WLock acquires a lock for writing: a writer excludes everybody else.
func (c *Client) WLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.acquire(ctx, one("DLOCK.WLOCK", name), options)
}

// LockAll acquires several locks, all or none, in one step. Their order does not matter, and they never deadlock among
// themselves. In a cluster, they have to be in one slot: "{order:7}:stock" and "{order:7}:payment".
func (c *Client) LockAll(ctx context.Context, names []string, options ...Option) (*Lock, error) {
	return c.acquire(ctx, all(names), options)
}

// Semaphore is a lock that several may hold at once. [Client.Semaphore] makes one.
type Semaphore struct {
	client *Client
	name   string
	limit  int
}

// Semaphore returns a semaphore. The server does not store the limit: each request is judged by its own limit.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{client: c, name: name, limit: limit}
}

// WithPermits makes [Semaphore.Acquire] take this number of permits, all or none. The default is 1.
func WithPermits(permits int) Option { return func(t *terms) { t.permits = permits } }

// WithSlot makes [Semaphore.Acquire] also take a number, the lowest of 0 to limit - 1 that no other holder has.
// [Lock.Slot] returns it. A number belongs to one permit, so it cannot be combined with more.
func WithSlot() Option { return func(t *terms) { t.slot = true } }

// Acquire waits for permits, as [Client.Lock] waits for a lock.
func (s *Semaphore) Acquire(ctx context.Context, options ...Option) (*Lock, error) {
	terms, err := s.client.terms(options)
	if err != nil {
		return nil, err
	}
	if s.limit < 1 || terms.permits < 1 || terms.permits > s.limit {
		return nil, fmt.Errorf("dlock: %s: %d permits of %d", s.name, terms.permits, s.limit)
	}
	if terms.slot && terms.permits > 1 {
		return nil, fmt.Errorf("dlock: %s: a slot belongs to one permit, not to %d", s.name, terms.permits)
	}
	t := one("DLOCK.SACQUIRE", s.name)
	t.entries = command{"PERMITS", strconv.Itoa(terms.permits)}
	t.after = append(command{strconv.Itoa(s.limit)}, t.entries...)
	if terms.slot {
		t.after = command{strconv.Itoa(s.limit), "SLOT"}
	}
	return s.client.acquire(ctx, t, options)
}

// TryAcquire takes permits if they are free. The error is [ErrNotGranted] if they are not.
func (s *Semaphore) TryAcquire(ctx context.Context, options ...Option) (*Lock, error) {
	return s.Acquire(ctx, append(options[:len(options):len(options)], WithWait(0))...)
}
