package dlock

import "time"

// due is what a heartbeat does next.
type due struct {
	what beat
	at   time.Time
}

type beat int

const (
	// Nothing more is renewed.
	rests beat = iota
	// The lease is renewed.
	renews
	// A renewal is on its way. Without an answer, it is given up, and sent again on another connection.
	awaits
	// The server is asked how long the hold lasts: a cap has made it shorter than what was asked for.
	checks
)

// heartbeat decides when a hold, or a session, is renewed. Nothing here reads a clock.
type heartbeat struct {
	next due
	// The time for which the last renewal was planned.
	renewal time.Time
	// A cap has made the lease shorter than what was asked for: nothing more is renewed.
	isCapped bool
}

// lease returns the lease that the times of the heartbeat are parts of.
func (v *validity) lease() time.Duration { return min(v.wanted, v.sure) }

// ok is told of a grant, or of a renewal that was executed. Its command was sent at `sent`.
func (h *heartbeat) ok(v *validity, now, sent time.Time) {
	h.plans(v, later(now, sent.Add(wholeMillis(v.lease()/3))))
}

// sends is told of a renewal that is about to be sent.
func (h *heartbeat) sends(v *validity, now time.Time) {
	if !h.isCapped {
		h.next = due{awaits, earlier(now.Add(answerWithin(v.lease())), v.until)}
	}
}

// failed is told that a renewal was refused, or that its answer did not come.
func (h *heartbeat) failed(v *validity, now time.Time) {
	h.plans(v, now.Add(retryAfter(v.lease(), v.until.Sub(now))))
}

// capped is told that a cap has made a lease shorter than what was asked for: the hold ends with this lease.
func (h *heartbeat) capped(now time.Time) { h.next, h.isCapped = due{checks, now}, true }

// checked is told that the end of the hold, v.until, is known: the next renewal comes before it.
func (h *heartbeat) checked(v *validity) {
	if h.isCapped {
		h.next = due{}
		return
	}
	if h.next.what == renews {
		h.plans(v, h.renewal)
	}
}

func (h *heartbeat) plans(v *validity, at time.Time) {
	if !h.isCapped {
		h.renewal = earlier(at, v.until)
		h.next = due{renews, h.renewal}
	}
}

// answerWithin returns how long the answer to a renewal is waited for.
func answerWithin(lease time.Duration) time.Duration {
	return min(max(wholeMillis(lease/6), 50*time.Millisecond), 2*time.Second)
}

// retryAfter returns the pause after a renewal that failed. `certain` is how long the hold is still certain.
func retryAfter(lease, certain time.Duration) time.Duration {
	return min(max(wholeMillis(min(lease/30, certain/8)), 10*time.Millisecond), 500*time.Millisecond)
}

func wholeMillis(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }
