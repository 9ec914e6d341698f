package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// An extension that no server has confirmed proves nothing. One that is shorter may have been executed.
func TestAnExtensionWithoutAnAnswerPromisesNothing(t *testing.T) {
	t.Parallel()
	const short, long = 3 * time.Second, time.Minute
	for name, option := range map[string]dlock.ClientOption{
		"kept": dlock.WithSession(time.Minute), "renewed": dlock.WithoutSession(),
	} {
		for _, each := range []struct{ before, asked time.Duration }{{short, long}, {long, short}} {
			t.Run(fmt.Sprintf("%s, from %v to %v", name, each.before, each.asked), func(t *testing.T) {
				t.Parallel()
				s := startServer(t)
				client := newClient(t, s.address(), option)
				lock := acquire(t, client, "job", dlock.WithLease(each.before))
				s.learned(lock)
				s.signal(syscall.SIGSTOP)
				defer s.signal(syscall.SIGCONT)
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				if err := lock.Extend(ctx, each.asked); !errors.Is(err, dlock.ErrUnreachable) {
					t.Fatalf("the error is %v", err)
				}
				if left := lock.Remaining(); left > short {
					t.Fatalf("held for %v", left)
				}
			})
		}
	}
}

// learned waits until a client has asked for the cap of a lock, if it does.
func (s *server) learned(lock *dlock.Lock) {
	end := time.Now().Add(1500 * time.Millisecond)
	eventually(s.t, "the cap is known", func() bool {
		return s.info("commandstats", "cmdstat_dlock.info") != "" || time.Now().After(end)
	})
}

// A lost reply leaves open which of two renewals the server executes last.
func TestARenewalThatMayStillComeIsCounted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	wired, isDown := dlock.Wired(s.address()), atomic.Bool{}
	client, err := dlock.Over(func(ctx context.Context) (dlock.Conn, error) {
		if isDown.Load() {
			return nil, errors.New("it is down")
		}
		return wired(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	lock := acquire(t, client, "job", dlock.WithLease(20*time.Second), dlock.WithoutRenewal())
	isDown.Store(true) // Nothing is sent, so nothing is open.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := lock.Extend(ctx, 10*time.Second); !errors.Is(err, dlock.ErrUnreachable) {
		t.Fatalf("the error is %v", err)
	}
	isDown.Store(false)
	if err := extend(lock, time.Minute); err != nil || lock.Remaining() < 50*time.Second {
		t.Fatalf("held for %v: %v", lock.Remaining(), err)
	}
	s.signal(syscall.SIGSTOP)
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := lock.Extend(ctx, 10*time.Second); !errors.Is(err, dlock.ErrUnreachable) {
		t.Fatalf("the error is %v", err)
	}
	s.signal(syscall.SIGCONT)
	if err := extend(lock, time.Minute); err != nil || lock.Remaining() > 10*time.Second {
		t.Fatalf("held for %v: %v", lock.Remaining(), err)
	}
	release(t, lock)
}

func TestALockWhoseLeaseBecomesShorterIsRenewedInTime(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	lock := acquire(t, newClient(t, s.address(), dlock.WithoutSession()), "job", dlock.WithLease(time.Minute))
	time.Sleep(100 * time.Millisecond) // By now it waits for the next renewal, in 20 s.
	const lease = 9 * time.Second
	if err := extend(lock, lease); err != nil {
		t.Fatal(err)
	}
	time.Sleep(lease + time.Second)
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
}
