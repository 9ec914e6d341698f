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

// home is the session on one server, with the locks that it keeps. A goroutine sends its heartbeats, from its first use
// until it has not been used for a while.
type home struct {
	all  *sessions
	pool *pool
	// The name of the session on the server. A new one replaces it if the reply to an opening was lost.
	id string
	// Something is new for the goroutine.
	wake chan struct{}
	// The connection for the exchanges of the session. The goroutine alone uses it.
	conn *conn

	// The rest is guarded by all.mu.
	// The session as it is open. Nil: it is not.
	open *opening
	// When the goroutine has its next turn.
	planned time.Time
	// Looks for lost locks at `ends`.
	ending *time.Timer
	ends   time.Time
	// Why it cannot be opened: what the server answered, or that the client is closed.
	refused error
	// Closed, and replaced, when the session was opened or confirmed, or when `refused` was set.
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

// seat is the session that a command names.
type seat struct {
	home *home
	*opening
}

// join returns the session on a server, open, and confirmed lately. Each call that succeeds needs a call of leave.
func (s *sessions) join(ctx context.Context, p *pool, until time.Time) (*seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at(p)
	h.users++
	for {
		if h.open != nil && h.open.isFresh(time.Now()) {
			return &seat{h, h.open}, nil
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
func (s *sessions) leave(b *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.home.users--
	b.home.used = time.Now()
}

// isFresh returns whether the session of an acquisition is still the same, and lives for long enough.
func (s *sessions) isFresh(b *seat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.home.open == b.opening && b.isFresh(time.Now())
}

// endOf returns until when a session is certain.
func (s *sessions) endOf(o *opening) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.life.until
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

// add makes a session keep a lock. `under` is the opening that the lock is bound to, nil if it is bound to none. `asked`
// is the opening that an unanswered command names, which may have the lock, too. No other goroutine has the lock yet.
func (s *sessions) add(h *home, under, asked *opening, l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.locks[l] = struct{}{}
	l.home = h
	if under != nil {
		l.binding.binds(under, h.open)
	}
	if asked != nil {
		l.binding.asks(asked)
	}
	l.binding.uncut(l.lease.until) // A lease beyond the cap is refused.
	h.sees(l)
}

// remove makes a session forget a lock. False: no session ever kept it.
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

// removeLost removes a lock that is lost, and has it released: the server may still have it, and would keep it with the
// session.
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
	return l.home != nil && l.binding.to != nil
}

// seatOf returns the session that keeps a lock, or kept it until it was removed. Nil: no session ever kept it.
func (s *sessions) seatOf(l *Lock) *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.home == nil {
		return nil
	}
	return &seat{l.home, l.home.open}
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
func (s *sessions) ended(b *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.opening != nil && b.home.open == b.opening {
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
	h.open.isOver = true
	h.open = nil
	for l := range h.locks {
		l.binding.unbinds()
	}
}

func (h *home) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}
