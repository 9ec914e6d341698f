package dlock

import "time"

// lengths is what is known of the length of a lease. The server sets it when it executes a renewal: late if the answer was
// lost, and in any order for renewals on several connections. So the client counts with the shortest that the server may
// have.
type lengths struct {
	// The next renewal asks for this.
	wanted time.Duration
	// The server has no shorter one.
	sure time.Duration
	// Renewals whose answers were not read, and the shortest lease since the first of them was sent.
	open     int
	shortest time.Duration
}

func (l *lengths) sends(lease time.Duration) {
	if l.open == 0 || lease < l.shortest {
		l.shortest = lease
	}
	l.open++
	l.sure = min(l.sure, lease)
}

// answered is told that a renewal has its answer, and whether it was executed.
func (l *lengths) answered(executed bool) {
	l.open--
	if executed {
		l.sure = l.shortest
	}
}

// wants sets the length that the next renewal asks for.
func (l *Lock) wants(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length.wanted = lease
}

// wantedLease returns the length that the next renewal asks for.
func (l *Lock) wantedLease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length.wanted
}

// sureLease returns the shortest lease that the server may have.
func (l *Lock) sureLease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length.sure
}

// sends is told of a renewal. If it is shorter, it may end the lock before its answer is read.
func (l *Lock) sends(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length.sends(lease)
	if until := endOf(time.Now(), lease); until.Before(l.until) {
		l.endsAt(until)
	}
}

func (l *Lock) answered(executed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length.answered(executed)
}

// endsAt sets until when a lock is held that no session keeps. The caller holds l.mu.
func (l *Lock) endsAt(until time.Time) {
	l.until = until
	if l.state == isHeld && l.ending != nil {
		l.ending.Reset(time.Until(until))
	}
}
