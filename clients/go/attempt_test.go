package dlock

import (
	"testing"
	"time"
)

// A case that no history has: a session may make a grant uncertain, or end it before its lease does.
func TestAGrantIsCertainOnlyWithItsSession(t *testing.T) {
	l := limits{ends: seconds(20)}
	a := newAttempt(seconds(0), l, 30*time.Second)
	number := a.sends(seconds(0))
	if next := a.granted(seconds(0.1), number, true); next.do != confirms {
		t.Fatalf("believed: %v", next)
	}
	number = a.renews(seconds(1))
	if next := a.ok(seconds(5), number, seconds(4)); next.do != confirms {
		t.Fatalf("believed although its session may have ended: %v", next)
	}
	number = a.renews(seconds(6))
	next := a.ok(seconds(6.1), number, seconds(9))
	if next.do != endsGranted || at(next.until) != "9000" {
		t.Fatalf("certain until %s: %v", at(next.until), next)
	}
}

// After silence on a connection, a client sends a release there and goes on as a new owner. The request that it has
// forsaken may still be granted, and asks for a cleanup when the attempt ends.
func TestTheRequestOfAForsakenOwnerIsCleanedUp(t *testing.T) {
	a := newAttempt(seconds(0), limits{ends: seconds(20)}, 30*time.Second)
	a.sends(seconds(0))
	a.forsakes()
	if next := a.cut(seconds(1)); next.do != tries {
		t.Fatalf("next: %v", next)
	}
	number := a.sends(seconds(1))
	next := a.granted(seconds(1.1), number, false)
	if next.do != endsGranted || at(next.until) != "30998" {
		t.Fatalf("certain until %s: %v", at(next.until), next)
	}
	b := newAttempt(seconds(0), limits{ends: seconds(20)}, 30*time.Second)
	b.sends(seconds(0))
	b.forsakes()
	if next := b.canceled(); next.cleanup != leaves {
		t.Fatalf("cleanup: %v", next)
	}
}
