package dlock

import (
	"slices"
	"time"
)

// attempt decides what one acquisition does next, and how it ends. A command is sent again with the same owner and REQUEST,
// so that it gets the grant, or the place in the queue, of the copy before it. Nothing here reads a clock or sends anything.
type attempt struct {
	limits
	lease time.Duration
	// When a server answered last, and whether one has answered at all.
	heard      time.Time
	isAnswered bool
	// A server has said that it was not granted.
	saidNo bool

	// Copies of the request that have no answer: each may still be granted.
	copies []copyOf
	// Copies of requests of former owners, whom nobody waits for.
	forsaken int
	numbers  int
	// The grant counts from then. Zero: there is none.
	since time.Time
	// The commands that renew the grant, to make it certain.
	renewals []copyOf
}

// copyOf is one sending of a command.
type copyOf struct {
	number int
	at     time.Time
}

// doing is what an attempt does next, or how it ends.
type doing int

const (
	// Asks without waiting.
	tries doing = iota
	// Asks, and waits in the queue.
	waits
	// Renews the grant: too little of it is certain.
	confirms

	endsGranted
	endsRefused
	endsUnreachable
	endsCanceled
	endsFailed
)

// cleanup is what an attempt leaves to be done.
type cleanup int

const (
	// Nothing can be left on a server.
	cleansNothing cleanup = iota
	// A command may wait or be granted.
	leaves
	// The token is known, and the hold is not wanted.
	releases
)

// turn is one decision of an attempt.
type turn struct {
	do doing
	// With a new owner: the last grant is over.
	fresh bool
	// The grant is certain until then.
	until   time.Time
	cleanup cleanup
}

func newAttempt(now time.Time, l limits, lease time.Duration) attempt {
	return attempt{limits: l, lease: lease, heard: now}
}

// again returns how the acquiring command is sent next. Most locks are free: the first one does not wait.
func (a *attempt) again() turn {
	if a.isTry || !a.isAnswered {
		return turn{do: tries}
	}
	return turn{do: waits}
}

// sends notes a copy of the acquiring command, before it is sent, and returns its number.
func (a *attempt) sends(now time.Time) int {
	a.numbers++
	a.copies = append(a.copies, copyOf{a.numbers, now})
	return a.numbers
}

// renews notes a renewal that is to make the grant certain, before it is sent, and returns its number.
func (a *attempt) renews(now time.Time) int {
	a.numbers++
	a.renewals = append(a.renewals, copyOf{a.numbers, now})
	return a.numbers
}

// hears notes that a server has answered, not necessarily this attempt.
func (a *attempt) hears(at time.Time) { a.heard = later(a.heard, at) }

// answered notes that a server has answered this attempt.
func (a *attempt) answered(now time.Time) {
	a.heard, a.isAnswered = now, true
}

// granted takes a grant. It may be as old as the earliest copy that has no answer: a later copy gets the grant of an
// earlier one. `doubted`: something else makes it uncertain.
func (a *attempt) granted(now time.Time, number int, doubted bool) turn {
	i := slices.IndexFunc(a.copies, func(c copyOf) bool { return c.number == number })
	if i < 0 {
		return a.again()
	}
	a.since = a.copies[0].at
	a.copies = slices.Delete(a.copies, i, i+1)
	a.answered(now)
	if !doubted && now.Sub(a.since) <= a.lease/3 {
		return a.grants(endOf(a.since, a.lease))
	}
	return turn{do: confirms}
}

// nil takes nil: not granted.
func (a *attempt) nil(now time.Time, number int, waited bool) turn {
	a.drops(number)
	a.answered(now)
	a.saidNo = true
	switch {
	case !a.since.IsZero(): // The grant of a copy is being confirmed.
		return turn{do: confirms}
	case a.isTry, a.left(now) == 0:
		return a.over(now)
	case waited && len(a.copies) == 0:
		return turn{do: endsRefused, cleanup: a.rest()}
	}
	// If this copy has waited, another one has taken its place.
	return turn{do: waits}
}

// ok takes the answer that a renewal of the grant was executed. `most`, unless it is zero: when the grant ends at the
// latest, by the answer to a CHECK or with its session.
func (a *attempt) ok(now time.Time, number int, most time.Time) turn {
	i := slices.IndexFunc(a.renewals, func(c copyOf) bool { return c.number == number })
	if i < 0 {
		return turn{do: confirms}
	}
	since := a.renewals[i].at
	a.renewals = slices.Delete(a.renewals, i, i+1)
	a.answered(now)
	until := endOf(since, a.lease)
	if !most.IsZero() {
		until = earlier(until, most)
	}
	if now.Before(until) {
		a.since = since
		return a.grants(until)
	}
	if a.left(now) == 0 {
		return a.over(now)
	}
	return turn{do: confirms}
}

// gone takes the answer that the grant is over. The next request is a new one.
func (a *attempt) gone(now time.Time) turn {
	a.answered(now)
	a.saidNo = true
	a.since, a.renewals = time.Time{}, nil
	a.forsakes()
	if a.left(now) == 0 {
		return turn{do: endsRefused, cleanup: a.rest()}
	}
	if a.isTry {
		return turn{do: tries, fresh: true}
	}
	return turn{do: waits, fresh: true}
}

// cut says that no answer came. The command may still be executed.
func (a *attempt) cut(now time.Time) turn { return a.repeats(now) }

// refused takes an error which says that the command was not executed, and has to be sent again, perhaps elsewhere.
func (a *attempt) refused(now time.Time, number int) turn {
	a.drops(number)
	return a.repeats(now)
}

func (a *attempt) repeats(now time.Time) turn {
	switch {
	case a.left(now) == 0:
		return a.over(now)
	case !a.since.IsZero():
		return turn{do: confirms}
	}
	return a.again()
}

// failed takes any other error.
func (a *attempt) failed(number int) turn {
	a.drops(number)
	return turn{do: endsFailed, cleanup: a.rest()}
}

// canceled says that the caller no longer waits.
func (a *attempt) canceled() turn { return turn{do: endsCanceled, cleanup: a.rest()} }

// over says that the limit has passed, or that no server has answered for too long.
func (a *attempt) over(now time.Time) turn {
	switch until := endOf(a.since, a.lease); {
	case !a.since.IsZero() && now.Before(until):
		return a.grants(until)
	case a.since.IsZero() && a.saidNo && !a.ends.IsZero():
		return turn{do: endsRefused, cleanup: a.rest()}
	}
	return turn{do: endsUnreachable, cleanup: a.rest()}
}

func (a *attempt) grants(until time.Time) turn { return turn{do: endsGranted, until: until} }

// rest returns what is left to be done at the end.
func (a *attempt) rest() cleanup {
	switch {
	case !a.since.IsZero():
		return releases
	case a.strays() > 0:
		return leaves
	}
	return cleansNothing
}

// strays returns how many copies of requests have no answer.
func (a *attempt) strays() int { return len(a.copies) + a.forsaken }

// forsakes makes the copies those of a former owner.
func (a *attempt) forsakes() {
	a.forsaken += len(a.copies)
	a.copies = nil
}

func (a *attempt) drops(number int) {
	same := func(c copyOf) bool { return c.number == number }
	a.copies = slices.DeleteFunc(a.copies, same)
	a.renewals = slices.DeleteFunc(a.renewals, same)
}
