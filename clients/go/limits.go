package dlock

import "time"

// The time limits of docs/time-limits.md. Nothing in this file reads a clock: the functions turn the limits into
// deadlines for the steps of an acquisition.
const (
	// How long a wait without a limit looks for a server, unless the caller sets another time.
	defaultOutage = 30 * time.Second
	// How long a command that does not wait may take in all.
	defaultAnswer = time.Second
	// How long an unlock looks for a server if its context has no deadline.
	unlockLimit = 3 * time.Second
	// How long the background work after an acquisition may take.
	cleanupLimit = 3 * time.Second
	// How long the client waits for the server's answer after the limit of a wait has passed.
	late = 150 * time.Millisecond
	// How long after `late` the client still reads and confirms a grant that came at the last moment. Replicas get at
	// least this time to acknowledge a grant.
	lastStep = 50 * time.Millisecond
	// How late WAIT may end: a server checks ten times a second (hz) which waits are over.
	endsLate = 100 * time.Millisecond
	// How long one connection may take to be made, or to answer a command that does not wait.
	step = time.Second
	// A wait that hears nothing asks the server at least this often whether it still answers.
	longestProbe = 5 * time.Second
)

// limits are the time limits of one acquisition.
type limits struct {
	// When waiting ends. Zero: never.
	ends time.Time
	// Whether the request does not wait for the lock, but only for an answer.
	isTry bool
	// How long a wait without an end looks for a server, from the last answer of one.
	outage time.Duration
}

// limitsFrom returns the limits of an acquisition that begins now. A deadline of the caller's context counts, too.
func limitsFrom(now time.Time, t terms, deadline time.Time) limits {
	l := limits{outage: t.outage, isTry: t.limited && t.wait == 0}
	switch {
	case l.isTry:
		l.ends = now.Add(defaultAnswer)
	case t.limited:
		l.ends = now.Add(t.wait)
	}
	if !deadline.IsZero() && (l.ends.IsZero() || deadline.Before(l.ends)) {
		l.ends = deadline
	}
	return l
}

// givesUp returns when the acquisition stops looking for a server. `heard` is when a server answered last.
func (l limits) givesUp(heard time.Time) time.Time {
	if l.ends.IsZero() {
		return heard.Add(l.outage)
	}
	return l.ends
}

// answerBy returns the deadline for making a connection, and for the answer to a command that does not wait.
func (l limits) answerBy(now, heard time.Time) time.Time {
	return earlier(now.Add(step), l.givesUp(heard).Add(late))
}

// confirmBy returns the deadline for reading and confirming a grant. It does not depend on when the grant has come.
func (l limits) confirmBy(now, heard time.Time) time.Time {
	return earlier(now.Add(step), l.givesUp(heard).Add(late+lastStep))
}

// left returns the time of waiting that is left: without an end always longestLease, which stands for any time.
func (l limits) left(now time.Time) time.Duration {
	if l.ends.IsZero() {
		return longestLease
	}
	return max(0, l.ends.Sub(now))
}

// ofReplicas returns how long replicas may take to acknowledge a grant. The server answers by the end of the wait,
// unless less time than endsLate+lastStep is left.
func (l limits) ofReplicas(wanted time.Duration, now time.Time) time.Duration {
	if l.ends.IsZero() {
		return wanted
	}
	return min(wanted, max(l.left(now)-endsLate, lastStep))
}

// block returns the value for BLOCK, in whole milliseconds. 0: without a limit.
func (l limits) block(now time.Time) time.Duration {
	if l.ends.IsZero() {
		return 0
	}
	return max(time.Millisecond, (l.left(now) + time.Millisecond - 1).Truncate(time.Millisecond))
}

// probeEvery returns how often a wait that hears nothing asks whether the server still answers.
func (l limits) probeEvery() time.Duration { return min(longestProbe, l.outage/3) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
