package dlock

import "time"

// opening is one life of a session on a server: from its DLOCK.SESSION command until the server no longer knows it.
type opening struct {
	id string
	// The validity of the session: the lease is the timeout of the session, and the renewals are the heartbeats.
	life validity
	beat heartbeat
	// When the last heartbeat that succeeded was sent.
	confirmed time.Time
	// The server no longer knows it. It has ended what it kept, or has forgotten it (a restart, another server).
	isOver bool
}

// opened returns the opening that a DLOCK.SESSION command has begun, which was sent at `sent`.
func opened(now, sent time.Time, id string, timeout time.Duration) *opening {
	o := &opening{id: id, confirmed: sent, life: newValidity(now, sent, timeout, false)}
	o.beat.ok(&o.life, now, sent)
	return o
}

// beats notes a heartbeat, before it is sent, and returns its number.
func (o *opening) beats(now time.Time) int {
	number := o.life.sends(now, o.life.wanted)
	o.beat.sends(&o.life, now)
	return number
}

// ok takes the answer to a heartbeat.
func (o *opening) ok(now time.Time, number int) {
	if sent, ok := o.life.ok(number); ok {
		o.confirmed = later(o.confirmed, sent)
		o.beat.ok(&o.life, now, sent)
	}
}

// cut says that a heartbeat got no answer.
func (o *opening) cut(now time.Time, number int) {
	o.life.cut(number)
	o.beat.failed(&o.life, now)
}

// isFresh returns whether the session will last for long enough to begin a hold under it. A heartbeat is due after a third of
// the timeout; if half of it has passed, a heartbeat is late.
func (o *opening) isFresh(now time.Time) bool {
	return !o.isOver && now.Sub(o.confirmed) < o.life.wanted/2
}

// binding says which session keeps a hold, and which may end it. Nothing here reads a clock.
type binding struct {
	// The session that keeps the hold: its heartbeats prove that the hold is there. Nil: none does.
	to *opening
	// The proof of the session that kept it before, and when that may have ended it. Zero: never.
	proved, ends time.Time
	// The session that an unanswered command names. The command may have bound the hold to it, so it may end the hold, too.
	asked *opening
	// The time at which a cap ends the hold, even if it is renewed. While `known` is false, a lower bound of that time.
	cap   time.Time
	known bool
}

// asks is told of a command that binds the hold, before it is sent.
func (b *binding) asks(to *opening) {
	if b.to == to || b.asked == to {
		return
	}
	if b.asked != nil && (b.ends.IsZero() || b.asked.life.until.Before(b.ends)) {
		b.ends = b.asked.life.until
	}
	b.asked = to
}

// binds takes the answer that the hold is bound to a session. `current`: the one that is open now.
func (b *binding) binds(to, current *opening) {
	b.asked = nil
	b.to, b.ends = to, time.Time{}
	if to != current {
		b.unbinds()
	}
}

// renewed takes the answer that the hold was renewed without a session, so the session before has not ended it.
func (b *binding) renewed() { b.ends = time.Time{} }

// unbinds says that later heartbeats prove nothing about the hold. The former ones still do.
func (b *binding) unbinds() {
	if b.to != nil {
		b.proved, b.ends = later(b.proved, b.to.confirmed), b.to.life.until
		b.to = nil
	}
}

// certain returns until when the hold is certain. `lease` is what the hold's own renewals prove. A heartbeat of the session
// proves two thirds of the lease, because the server keeps that much ahead. When the session ends, so does the hold.
func (b *binding) certain(lease *validity) time.Time {
	proved := b.proved
	if b.to != nil {
		proved = later(proved, b.to.confirmed)
	}
	at := later(lease.until, proved.Add(lease.sure*2/3))
	for _, each := range []*opening{b.to, b.asked} {
		if each != nil {
			at = earlier(at, each.life.until)
		}
	}
	for _, end := range []time.Time{b.ends, b.cap} {
		if !end.IsZero() {
			at = earlier(at, end)
		}
	}
	return at
}

// caps notes when the cap ends the hold.
func (b *binding) caps(at time.Time) { b.cap, b.known = at, true }

// uncut notes that no cap has shortened a lease that lasts until then, so that the cap is no earlier.
func (b *binding) uncut(until time.Time) {
	if !b.known {
		b.cap = later(b.cap, until)
	}
}
