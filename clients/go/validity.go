package dlock

import (
	"slices"
	"time"
)

// validity knows until when a hold is certain. The server ends a lease by its own clock, and the client knows only when it
// sent a command and when it read the answer. So a lease counts from the moment before its command was sent, and of several
// commands that may be executed in any order, the shortest lease counts. Nothing here reads a clock.
//
// A named session is such a hold, too: its lease is its timeout, and its renewals are the heartbeats.
type validity struct {
	// The lease that the last command asked for.
	wanted time.Duration
	// The lease that the server has at least.
	sure  time.Duration
	until time.Time
	state state

	// Commands that were sent. Those that set the lease and have no answer are open.
	sent []sending
	// The shortest lease since a command was sent while none was open.
	shortest time.Duration
	// Commands that are open for good, and of which nothing else is known.
	abandoned int
	// The numbers of the last command, and of the last that sets the lease.
	last, lastSet int
}

type state int

const (
	isHeld state = iota
	isLost
	isReleased
)

// sending is a command that was sent.
type sending struct {
	number int
	at     time.Time
	lease  time.Duration // 0: it asks how much is left
	// Whether the command got no answer.
	isCut bool
	// The question may overtake a command which sets the lease.
	overtakes bool
}

// The number of commands without an answer that are remembered one by one.
const mostRemembered = 16

// endOf returns until when a lease is certain, given the time at which its command was sent. Client and server count
// whole milliseconds.
func endOf(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - 2*time.Millisecond)
}

// newValidity returns the validity of a grant, given the time at which its command was sent. `open`: an earlier copy of
// the command may still be executed.
func newValidity(now, sent time.Time, lease time.Duration, open bool) validity {
	v := validity{wanted: lease, sure: lease, shortest: lease, until: endOf(sent, lease)}
	if open {
		v.abandoned = 1
	}
	v.passes(now)
	return v
}

// passes loses the hold if the time until which it is certain has come.
func (v *validity) passes(now time.Time) {
	if v.state == isHeld && !now.Before(v.until) {
		v.state = isLost
	}
}

// open returns how many commands that set the lease have no answer.
func (v *validity) open() int {
	open := v.abandoned
	for _, each := range v.sent {
		if each.lease > 0 {
			open++
		}
	}
	return open
}

// sends notes a command that sets the lease, before it is sent, and returns its number.
func (v *validity) sends(now time.Time, lease time.Duration) int {
	if v.open() == 0 || lease < v.shortest {
		v.shortest = lease
	}
	v.wanted = lease
	v.sure = min(v.sure, lease)
	v.until = earlier(v.until, endOf(now, lease))
	v.lastSet = v.notes(now, lease)
	return v.lastSet
}

// asks notes a question for the time that is left, before it is sent.
func (v *validity) asks(now time.Time) int {
	overtakes := v.open() > 0
	number := v.notes(now, 0)
	v.sent[len(v.sent)-1].overtakes = overtakes
	return number
}

func (v *validity) notes(now time.Time, lease time.Duration) int {
	v.last++
	v.sent = append(v.sent, sending{number: v.last, at: now, lease: lease})
	return v.last
}

// take removes a command that has its answer.
func (v *validity) take(number int) (sending, bool) {
	for i, each := range v.sent {
		if each.number == number {
			v.sent = slices.Delete(v.sent, i, i+1)
			return each, true
		}
	}
	return sending{}, false
}

// ok takes the answer that a command has set the lease, and returns when the command was sent. The answer never makes
// `until` earlier.
func (v *validity) ok(number int) (time.Time, bool) {
	each, ok := v.take(number)
	if ok {
		v.sure = v.shortest
		v.until = later(v.until, endOf(each.at, v.sure))
	}
	return each.at, ok
}

// cut says that the answer did not come. The command may still be executed, at any time.
func (v *validity) cut(number int) {
	cut := 0
	for i := range v.sent {
		if v.sent[i].number == number {
			v.sent[i].isCut = true
		}
		if v.sent[i].isCut {
			cut++
		}
	}
	if cut > mostRemembered {
		i := slices.IndexFunc(v.sent, func(each sending) bool { return each.isCut })
		if v.sent[i].lease > 0 {
			v.abandoned++
		}
		v.sent = slices.Delete(v.sent, i, i+1)
	}
}

// refused takes the answer that a command was not executed, or that a cap has made the lease shorter than what it asked for.
func (v *validity) refused(number int) { v.take(number) }

// left takes the answer to a question for the time that is left. The server is right in both directions, unless a command
// that sets the lease was open when the question was sent, or was sent since: it may be executed after the question.
func (v *validity) left(number int, left time.Duration) {
	each, ok := v.take(number)
	switch {
	case !ok:
	case each.overtakes || v.lastSet > number:
		v.until = later(v.until, endOf(each.at, min(left, v.sure)))
	default:
		v.until = endOf(each.at, left)
	}
}

// gone takes the answer that the server has no such hold.
func (v *validity) gone() {
	if v.state == isHeld {
		v.state = isLost
	}
}

// release says that the hold is given up.
func (v *validity) release() {
	if v.state == isHeld {
		v.state = isReleased
	}
}
