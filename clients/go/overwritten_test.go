package dlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// Another program that writes to the key takes the lock away. The server's answer then (WRONGTYPE) says so.
func TestALockWhoseKeyIsOverwrittenIsLost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx := context.Background()
	isLost := func(t *testing.T, what string, lock *dlock.Lock, err error) {
		t.Helper()
		var answer dlock.ServerError
		if !errors.Is(err, dlock.ErrLost) || !errors.As(err, &answer) || answer.Code() != "WRONGTYPE" {
			t.Errorf("%s: %v", what, err)
		}
		if lock.Remaining() != 0 || lock.Context().Err() == nil {
			t.Errorf("%s: held for %v", what, lock.Remaining())
		}
	}
	for name, option := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, s.address(), option)
			overwritten := func() *dlock.Lock {
				s.call("DEL", name)
				lock := acquire(t, client, name, dlock.WithLease(forLong))
				s.call("SET", name, "text")
				return lock
			}
			lock := overwritten()
			isLost(t, "release", lock, lock.Unlock(ctx))
			lock = overwritten()
			isLost(t, "extend", lock, lock.Extend(ctx, time.Minute))
			if !errors.Is(context.Cause(lock.Context()), dlock.ErrLost) {
				t.Errorf("the cause is %v", context.Cause(lock.Context()))
			}
			if err := lock.Unlock(ctx); !errors.Is(err, dlock.ErrLost) {
				t.Errorf("release of a lock that is lost: %v", err)
			}
			if s.call("GET", name) != "text" {
				t.Error("the other program's key has gone")
			}
			s.call("DEL", name)
			several, err := client.LockAll(ctx, []string{name, name + "2"})
			if err != nil {
				t.Fatal(err)
			}
			s.call("SET", name, "text")
			isLost(t, "release of several", several, several.Unlock(ctx))
			s.isFree(name + "2")
		})
	}
}

// `defer lock.Unlock(ctx)` runs when ctx has ended, more often than not.
func TestUnlockWithAnEndedContextReleases(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	over, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	for name, ctx := range map[string]context.Context{"canceled": canceled, "over": over} {
		lock := acquire(t, client, name, dlock.WithLease(forLong))
		if err := lock.Unlock(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if reply := s.call("EXISTS", name); reply != ":0" {
			t.Errorf("%s: it is held", name)
		}
	}
}

func TestUnlockThatIsCanceledMeanwhileSaysWhetherItReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.address())
	client := newClient(t, p.address())
	lock := acquire(t, client, "job", dlock.WithLease(forLong))
	p.repliesTake.Store(int64(300 * time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestUnlockWithAnEndedContextDoesNotWaitForAServerThatHangs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	lock := acquire(t, client, "job", dlock.WithLease(forLong))
	freeze(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	began, before := time.Now(), late.Load()
	err := lock.Unlock(ctx)
	if took := time.Since(began); took > 1250*time.Millisecond+time.Duration(late.Load()-before) {
		t.Errorf("it took %v", took)
	}
	if !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	thaw(s)
	s.isFree("job")
}
