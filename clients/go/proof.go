package dlock

import (
	"errors"
	"time"
)

// until returns until when a lock is held for certain.
func (s *sessions) until(l *Lock) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.certain()
}

// certain is for callers that hold sessions.mu. While the session is open, the server keeps two thirds of the lease ahead.
func (l *Lock) certain() time.Time {
	proved := l.proved
	if l.bound {
		proved = later(proved, l.home.confirmed)
	}
	return earlier(proved.Add(l.reach()), l.cap)
}

// reach returns for how long a proof is good.
func (l *Lock) reach() time.Duration {
	return min(l.client.sessions.time, l.sureLease()*2/3)
}

// reaches notes that a cap has not cut a renewal that was sent then. The caller holds sessions.mu.
func (l *Lock) reaches(sent time.Time) {
	if !l.known {
		l.cap = later(l.cap, endOf(sent, l.sureLease()))
	}
}

// caps notes when the cap of a lock ends it.
func (s *sessions) caps(l *Lock, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.cap, l.known = at, true
	if l.home != nil {
		l.home.sees(l)
	}
}

// sees is told that the end of a lock has changed.
func (s *sessions) sees(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.home.sees(l)
}

// proves notes that a lock was bound by a command that was sent then.
func (s *sessions) proves(l *Lock, b *binding, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.proved = later(l.proved, sent)
	l.reaches(sent)
	l.bound = l.home == b.home && l.home.isOpen && l.home.generation == b.generation
	l.home.sees(l)
}

// unbind says that later heartbeats prove nothing about a lock. The former ones still do. The caller holds sessions.mu.
func (l *Lock) unbind() {
	if l.bound {
		l.proved = later(l.proved, l.home.confirmed)
	}
	l.bound = false
}

// sees makes the heartbeats frequent enough for a lock, and watches its end. The caller holds all.mu.
func (h *home) sees(l *Lock) {
	if !l.bound || h.confirmed.Add(l.reach()/3).Before(h.planned) {
		h.nudge()
	}
	h.endsBy(l.certain())
}

// endsBy sets the timer that looks for lost locks. It does not depend on what the server does. The caller holds all.mu.
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

// expire says which locks are lost because no heartbeat succeeded in time.
func (h *home) expire() {
	h.all.mu.Lock()
	var over []*Lock
	var first time.Time
	now := time.Now()
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
	h.all.mu.Unlock()
	for _, l := range over {
		l.lose(errors.New("no heartbeat of its session has succeeded in time"))
	}
}
