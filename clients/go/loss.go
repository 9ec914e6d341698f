package dlock

import (
	"errors"
	"time"
)

// until returns the time until which a lock that a session keeps is certainly held.
func (s *sessions) until(l *Lock) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.certain()
}

// certain returns what until returns. The caller holds sessions.mu.
func (l *Lock) certain() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.binding.certain(&l.lease)
}

// reach returns for how long a heartbeat is good.
func (l *Lock) reach() time.Duration {
	return min(l.client.sessions.time, l.sureLease()*2/3)
}

// caps notes when the cap of a lock ends it.
func (s *sessions) caps(l *Lock, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.binding.caps(at)
	if l.home != nil {
		l.home.sees(l)
	}
}

// asks notes a command that renews a lock, and may bind it to the session that it names, before the command is sent.
func (s *sessions) asks(l *Lock, b *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.opening != nil {
		l.binding.asks(b.opening)
	}
	l.home.sees(l)
}

// proves notes that a renewal of a lock has succeeded, and has bound the lock to the session that it named. A renewal
// that named none proves that the former session has not ended the lock. False: the answer comes too late, and the lock
// is certain no longer.
func (s *sessions) proves(l *Lock, b *seat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(l.certain()) {
		return false
	}
	switch {
	case b.opening == nil:
		l.binding.renewed()
	case l.home == b.home:
		l.binding.binds(b.opening, l.home.open)
	}
	l.mu.Lock()
	until := l.lease.until
	l.mu.Unlock()
	l.binding.uncut(until)
	l.home.sees(l)
	return true
}

// sees makes the heartbeats frequent enough for a lock, and watches its end. The caller holds all.mu.
func (h *home) sees(l *Lock) {
	if l.binding.to == nil || l.binding.to.confirmed.Add(l.reach()/3).Before(h.planned) {
		h.nudge()
	}
	h.endsBy(l.certain())
}

// endsBy sets the timer that looks for lost locks, unless it fires earlier. The timer does not depend on what the
// server does. The caller holds all.mu.
func (h *home) endsBy(at time.Time) {
	switch {
	case h.ending == nil:
		h.ending = time.AfterFunc(time.Until(at), h.expire)
	case h.ends.IsZero() || at.Before(h.ends):
		h.ending.Reset(time.Until(at))
	default:
		return
	}
	h.ends = at
}

// expire loses the locks that are certain no longer: no heartbeat succeeded in time, or a cap has ended them.
func (h *home) expire() {
	h.all.mu.Lock()
	over := h.over(time.Now())
	h.all.mu.Unlock()
	h.lose(over)
}

func (h *home) lose(locks []*Lock) {
	for _, l := range locks {
		l.lose(h.all.reason(l))
	}
}

// reason returns what has ended a lock that is certain no longer.
func (s *sessions) reason(l *Lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.binding.known && !l.certain().Before(l.binding.cap) {
		return errCap
	}
	return errNoHeartbeat
}

var (
	errCap         = errors.New("it has been held for as long as WithMaxHold, or dlock.max-hold of the server, allows")
	errNoHeartbeat = errors.New("no heartbeat of its session has succeeded in time")
)

// over returns the locks that are certain no longer, and sets the timer for the others. The caller holds all.mu.
func (h *home) over(now time.Time) []*Lock {
	var over []*Lock
	var first time.Time
	for l := range h.locks {
		switch at := l.certain(); {
		case !now.Before(at):
			over = append(over, l)
		case first.IsZero() || at.Before(first):
			first = at
		}
	}
	h.ends = time.Time{}
	if !first.IsZero() {
		h.endsBy(first)
	}
	return over
}
