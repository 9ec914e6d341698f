package dlock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// kept returns a session of 3 s that was opened at 0, and a hold that it keeps, granted at 0.8 with a lease of 30 s.
func kept() (*opening, *validity, *binding) {
	session := opened(seconds(0), seconds(0), "s", 3*time.Second)
	lease := newValidity(seconds(0.8), seconds(0.8), 30*time.Second, false)
	b := &binding{}
	b.binds(session, session)
	b.uncut(lease.until)
	return session, &lease, b
}

func seconds(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

func beats(o *opening, sent, read float64) {
	o.ok(seconds(read), o.beats(seconds(sent)))
}

func TestAHoldIsCertainForAsLongAsItsSession(t *testing.T) {
	for name, test := range map[string]struct {
		does  func(*opening, *validity, *binding)
		until string
	}{
		"granted under it": {func(*opening, *validity, *binding) {}, "2998"},
		"a heartbeat":      {func(o *opening, _ *validity, _ *binding) { beats(o, 1, 1.1) }, "3998"},
		"a heartbeat without an answer": {func(o *opening, _ *validity, _ *binding) {
			o.cut(seconds(2), o.beats(seconds(1)))
		}, "2998"},
		"a renewal": {func(_ *opening, v *validity, _ *binding) { v.ok(v.sends(seconds(2), 30*time.Second)) }, "2998"},
		"a session that is over": {func(o *opening, _ *validity, b *binding) {
			o.isOver = true
			b.unbinds()
		}, "2998"},
		"a session that goes on elsewhere": {func(o *opening, _ *validity, b *binding) {
			b.unbinds()
			beats(o, 1, 1.1)
		}, "2998"},
		"bound to the next session": {func(o *opening, _ *validity, b *binding) {
			b.unbinds()
			next := opened(seconds(2.5), seconds(2.4), "t", 3*time.Second)
			b.asks(next)
			b.binds(next, next)
		}, "5398"},
		"perhaps bound to the next session": {func(o *opening, v *validity, b *binding) {
			b.unbinds()
			b.asks(opened(seconds(1), seconds(0.9), "t", time.Second))
		}, "1898"},
		"perhaps bound to one, then to another": {func(o *opening, v *validity, b *binding) {
			b.unbinds()
			b.asks(opened(seconds(1), seconds(0.9), "t", time.Second))
			b.asks(opened(seconds(1), seconds(0.9), "u", 9*time.Second))
		}, "1898"},
		"bound to a session that is over by then": {func(o *opening, v *validity, b *binding) {
			b.binds(opened(seconds(1), seconds(0.9), "t", time.Second), nil)
		}, "1898"},
		"renewed where there is no session": {func(o *opening, v *validity, b *binding) {
			o.isOver = true
			b.unbinds()
			number := v.sends(seconds(2), 30*time.Second)
			v.ok(number)
			b.renewed()
			b.uncut(v.until)
		}, "31998"},
		"a cap": {func(o *opening, v *validity, b *binding) { b.caps(seconds(2)) }, "2000"},
		"a lease that is made short": {func(o *opening, v *validity, b *binding) {
			v.sends(seconds(1), 900*time.Millisecond)
			b.uncut(v.until)
		}, "1898"},
	} {
		o, v, b := kept()
		test.does(o, v, b)
		if got := at(b.certain(v)); got != test.until {
			t.Errorf("%s: until %s, and not %s", name, got, test.until)
		}
	}
}

// While the session lives, the server extends the lease as soon as less than two thirds of it are left.
func TestASessionKeepsAHoldBeyondItsLease(t *testing.T) {
	o := opened(seconds(0), seconds(0), "s", time.Minute)
	v := newValidity(seconds(0), seconds(0), 3*time.Second, false)
	b := &binding{}
	b.binds(o, o)
	beats(o, 20, 20.1)
	if got := at(b.certain(&v)); got != "22000" {
		t.Errorf("until %s", got)
	}
	b.uncut(v.until)
	if got := at(b.certain(&v)); got != "2998" {
		t.Errorf("before its cap is known: until %s", got)
	}
}

func TestASessionIsFreshForHalfOfItsTime(t *testing.T) {
	o := opened(seconds(0), seconds(0), "s", 3*time.Second)
	if !o.isFresh(seconds(1.4)) || o.isFresh(seconds(1.6)) {
		t.Error("not for half of it")
	}
	o.isOver = true
	if o.isFresh(seconds(0)) {
		t.Error("over")
	}
}

// A program that was paused may read the answer to a renewal before its timer says that the lease is over.
func TestAnAnswerThatIsReadAfterTheEndRevivesNothing(t *testing.T) {
	const lease = 50 * time.Millisecond
	l := newLock(context.Background(), &Client{}, one("DLOCK.ACQUIRE", "job"), terms{lease: lease}, time.Now(), false)
	l.ending = time.AfterFunc(time.Hour, func() {})
	time.Sleep(lease / 2)
	number := l.sends(lease)
	time.Sleep(lease * 4 / 5)
	l.renewed(number)
	if l.Remaining() > 0 || !errors.Is(l.err(), ErrLost) {
		t.Fatalf("held for %v: %v", l.Remaining(), l.err())
	}
	if l.sends(lease); l.lease.state != isLost {
		t.Fatal("held")
	}
}

// Two commands of a session hear that it has ended. The second one tells nothing new, and is no reason to refuse the
// acquisitions that wait for the next session.
func TestTheEndOfASessionIsHeardTwice(t *testing.T) {
	now := time.Now()
	open := opened(now, now, "id", time.Second)
	h := &home{
		all: &sessions{time: time.Second}, open: open, wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	for range 2 {
		number := open.beats(now)
		if err := h.heard(ServerError("NOSESSION no such session"), open, number, now, 0); err == nil {
			t.Fatal("the session has not ended")
		}
		if h.open != nil || h.refused != nil {
			t.Fatalf("open %v, refused %v", h.open, h.refused)
		}
	}
}

// heldBy returns a lock that the session of a home keeps, which was opened at a time, for a minute.
func heldBy(opens time.Time) (*home, *Lock) {
	c := &Client{}
	c.sessions = sessions{client: c, time: time.Minute}
	open := opened(opens, opens, "id", time.Minute)
	l := newLock(context.Background(), c, one("DLOCK.ACQUIRE", "job"), terms{lease: time.Hour}, time.Now(), false)
	l.binding.binds(open, open)
	l.home = &home{
		all: &c.sessions, open: open, wake: make(chan struct{}, 1), changed: make(chan struct{}),
		locks: map[*Lock]struct{}{l: {}},
	}
	return l.home, l
}

// The server lacks a hold, and does not say which: heartbeats prove nothing about a hold until it is bound again.
func TestAHoldIsNotProvedByHeartbeatsThatMissOne(t *testing.T) {
	now := time.Now()
	h, l := heldBy(now)
	open, until := h.open, l.certain()
	for i, expected := range []int{1, 0} {
		sent := now.Add(time.Duration(i+1) * time.Second)
		if err := h.heard(int64(0), open, open.beats(sent), sent, expected); err != nil {
			t.Fatal(err)
		}
		if got := l.certain(); !got.Equal(until) {
			t.Fatalf("until %v, and not %v", got, until)
		}
	}
	defer h.ending.Stop()
	if !h.all.proves(l, &seat{h, open}) || !l.certain().Equal(open.life.until) {
		t.Fatalf("bound again: until %v, and not %v", l.certain(), open.life.until)
	}
}

func TestAHoldIsNotRevivedByABindingThatComesTooLate(t *testing.T) {
	now := time.Now()
	h, l := heldBy(now.Add(-2 * time.Minute))
	h.lost()
	h.open = opened(now, now, "next", time.Minute)
	if h.all.proves(l, &seat{h, h.open}) || l.certain().After(now) {
		t.Fatalf("until %v", l.certain())
	}
}
