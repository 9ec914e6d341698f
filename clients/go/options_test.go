package dlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// lostBetween waits until a lock is lost, and fails if that takes less or more. A machine that is late does not count.
func lostBetween(t *testing.T, lock *dlock.Lock, least, most time.Duration) {
	t.Helper()
	watch := startWatch()
	select {
	case <-lock.Context().Done():
	case <-time.After(patience):
		t.Fatal("not told")
	}
	if !errors.Is(context.Cause(lock.Context()), dlock.ErrLost) {
		t.Fatalf("another cause: %v", context.Cause(lock.Context()))
	}
	took, machine := watch.took()
	slack := 20*time.Millisecond + machine
	if took < least-slack || took > most+slack {
		t.Fatalf("lost after %v, of which %v may be the machine's", took, machine)
	}
}

func TestAMaxHoldEndsALockThatIsRenewed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const limit = 3 * time.Second
	for name, client := range map[string]*dlock.Client{
		"kept": newClient(t, s.address(), dlock.WithSession(limit/2)), "renewed": newClient(t, s.address(), dlock.WithoutSession()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := acquire(t, client, name, dlock.WithLease(limit/2), dlock.WithMaxHold(limit))
			lostBetween(t, lock, limit/2+limit/4, limit)
			if cause := context.Cause(lock.Context()); strings.Contains(cause.Error(), "heartbeat") {
				t.Errorf("no heartbeat is missing: %v", cause)
			}
			release(t, acquire(t, client, name))
		})
	}
}

func TestALeaseIsCutToTheMaxHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	lock := acquire(t, newClient(t, s.address()), "job", dlock.WithMaxHold(time.Minute), dlock.WithLease(time.Hour))
	if left := lock.Remaining(); left > time.Minute {
		t.Fatalf("held for %v", left)
	}
	release(t, lock)
}

func TestALockStaysForAtLeastItsTime(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	const least = 3 * time.Second
	began := time.Now()
	release(t, acquire(t, client, "job", dlock.WithAtLeast(least), dlock.WithLease(600*time.Millisecond)))
	isHeld(t, client, "job")
	lock := acquire(t, client, "job", dlock.WithAtLeast(300*time.Millisecond))
	if took := time.Since(began); took < least {
		t.Fatalf("free after %v", took)
	}
	time.Sleep(350 * time.Millisecond)
	release(t, lock) // The time is over: at once.
	s.isFree("job")
}

func TestALockWhoseWorkHangsIsLost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	lock := acquire(t, client, "job", dlock.WithBeat(2*time.Second), dlock.WithLease(3*time.Second))
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := lock.Beat(); err != nil {
			t.Fatal(err)
		}
	}
	lostBetween(t, lock, time.Second/2, 2*time.Second)
	if err := lock.Beat(); !errors.Is(err, dlock.ErrLost) || !strings.Contains(err.Error(), "sign of life") {
		t.Fatalf("the error is %v", err)
	}
	release(t, acquire(t, client, "job"))
}

func TestOptionsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t, "127.0.0.1:1")
	for _, options := range [][]dlock.Option{
		{dlock.WithMaxHold(100 * time.Millisecond)},
		{dlock.WithMaxHold(time.Second), dlock.WithAtLeast(time.Minute)},
		{dlock.WithAtLeast(-1)},
		{dlock.WithBeat(-1)},
		{dlock.WithPermits(2)},
		{dlock.WithSlot()},
	} {
		if _, err := client.Lock(context.Background(), "job", options...); err == nil || errors.Is(err, dlock.ErrUnreachable) {
			t.Fatalf("the error is %v", err)
		}
	}
	byDefault := newClient(t, "127.0.0.1:1", dlock.WithDefaults(dlock.WithSlot()))
	if _, err := byDefault.Lock(context.Background(), "job", dlock.WithWait(0)); !errors.Is(err, dlock.ErrUnreachable) {
		t.Fatalf("defaults for semaphores refuse a lock: %v", err)
	}
	if _, err := dlock.New("127.0.0.1:1", dlock.WithSentinelAuth("worker", "")); err == nil {
		t.Fatal("no Sentinel is asked")
	}
	if _, err := dlock.NewCluster([]string{"127.0.0.1:1"}, dlock.WithSentinelAuth("worker", "")); err == nil {
		t.Fatal("no Sentinel is asked")
	}
	for _, options := range [][]dlock.Option{
		{dlock.WithSlot(), dlock.WithPermits(2)}, // A slot is a number of one permit.
		{dlock.WithPermits(4)},
	} {
		permits := client.Semaphore("job", 3)
		if _, err := permits.Acquire(context.Background(), options...); err == nil || errors.Is(err, dlock.ErrUnreachable) {
			t.Fatalf("the error is %v", err)
		}
	}
}
