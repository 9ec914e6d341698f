package dlock

import (
	"context"
	"sync"
	"time"
)

// sessions has the named sessions of a client: one for each server on which it holds locks.
type sessions struct {
	client *Client
	// How long a session lives after its last heartbeat.
	time time.Duration

	mu    sync.Mutex
	homes map[string]*home
}

// home is the session on one server, with the locks that it keeps. A goroutine sends its heartbeats, from the first lock
// until it has not been used for a while.
type home struct {
	all  *sessions
	pool *pool
	id   string
	// Something is new for the goroutine.
	wake chan struct{}
	// The connection for its exchanges, which are those of the goroutine.
	conn *conn

	// The rest is guarded by all.mu.
	isOpen bool
	// When the last heartbeat that succeeded was sent.
	confirmed time.Time
	// When the goroutine has its next turn.
	planned time.Time
	// Looks for locks that are lost, then.
	ending *time.Timer
	ends   time.Time
	// How often it was opened.
	generation int
	// Why it cannot be opened: what the server answered.
	refused error
	// Closed when one of the former changes.
	changed chan struct{}
	locks   map[*Lock]struct{}
	// Acquisitions that are under way.
	users int
	used  time.Time
	// Releases that no server has answered yet: the session would keep these holds.
	debts []debt
}

type debt struct {
	key      string
	commands []command
}

// binding is the session that an acquiring command names.
type binding struct {
	home       *home
	id         string
	generation int
}

// join returns the session on a server, open. Each call needs one of leave.
func (s *sessions) join(ctx context.Context, p *pool, until time.Time) (*binding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at(p)
	h.users++
	for {
		if h.isOpen && time.Since(h.confirmed) < s.time/2 {
			return &binding{h, h.id, h.generation}, nil
		}
		h.refused = nil
		changed := h.changed
		h.nudge()
		s.mu.Unlock()
		err := waitUntil(ctx, changed, until)
		s.mu.Lock()
		if err == nil {
			err = h.refused
		}
		if err != nil {
			h.users--
			return nil, err
		}
	}
}

func waitUntil(ctx context.Context, changed <-chan struct{}, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return errSilent
	case <-ctx.Done():
		return &canceled{context.Cause(ctx)}
	}
}

// leave ends what join began.
func (s *sessions) leave(b *binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.home.users--
	b.home.used = time.Now()
}

// at returns the home at an address, and begins it if there is none. The caller holds s.mu.
func (s *sessions) at(p *pool) *home {
	h := s.homes[p.address]
	if h == nil {
		h = &home{
			all: s, pool: p, id: unique(), wake: make(chan struct{}, 1), changed: make(chan struct{}),
			locks: map[*Lock]struct{}{}, used: time.Now(),
		}
		s.homes[p.address] = h
		s.client.behind(func() { h.run(s.client.beating) })
	}
	return h
}

// add makes a session keep a lock that was granted under it. Nobody else has the lock yet.
func (s *sessions) add(b *binding, l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := b.home
	h.locks[l] = struct{}{}
	l.home, l.bound = h, h.isOpen && h.generation == b.generation && !s.client.isOver()
	if !l.known {
		l.cap = l.until // A lease beyond the cap is refused.
	}
	h.sees(l)
}

// remove makes a session forget a lock. False: none keeps it.
func (s *sessions) remove(l *Lock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.home == nil {
		return false
	}
	delete(l.home.locks, l)
	l.home.used = time.Now()
	return true
}

// removeLost does the same with a lock that the server may still have, and would keep with the session.
func (s *sessions) removeLost(l *Lock) {
	if !s.remove(l) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.home.debts = append(l.home.debts, debt{l.target.keys[0], l.target.release(l.owner, l.token)})
	l.home.nudge()
}

// keeps returns whether the end of the session ends a lock.
func (s *sessions) keeps(l *Lock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.home != nil && l.bound
}

// bindingOf returns the session that keeps a lock now. Nil: none does.
func (s *sessions) bindingOf(l *Lock) *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.home == nil {
		return nil
	}
	return &binding{l.home, l.home.id, l.home.generation}
}

// owe makes a session see to it that releases are answered.
func (s *sessions) owe(p *pool, key string, commands []command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at(p)
	h.debts = append(h.debts, debt{key, commands})
	h.nudge()
}

// ended is told that the server does not know a session.
func (s *sessions) ended(b *binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.home.generation == b.generation {
		b.home.lost()
		b.home.nudge()
	}
}

func (h *home) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// lost says that the session has ended. The caller holds all.mu.
func (h *home) lost() {
	h.isOpen = false
	for l := range h.locks {
		l.unbind()
	}
}

func (h *home) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}
