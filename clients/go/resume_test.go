package dlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

func TestALockWhoseLeaseHasEndedIsLostNotHandedOver(t *testing.T) {
	t.Parallel()
	lock := acquire(t, newClient(t, startServer(t).address(), dlock.WithoutSession()), "job")
	lock.EndsUnnoticed()
	if err := lock.HandOver(); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("HandOver of a lock whose lease has ended returned %v", err)
	}
	if err := context.Cause(lock.Context()); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("the cause of the lock's context is %v", err)
	}
}

func TestAnotherClientGoesOnWithALock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const lease = 9 * time.Second
	for name, option := range map[string]dlock.ClientOption{
		"kept": dlock.WithSession(lease), "renewed": dlock.WithoutSession(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			one, other := newClient(t, s.address(), option), newClient(t, s.address(), option)
			lock := acquire(t, one, "job", dlock.WithLease(lease))
			if err := lock.HandOver(); err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(ctx); !errors.Is(err, dlock.ErrReleased) || lock.Remaining() != 0 {
				t.Errorf("the first client still holds the lock: Unlock returned %v", err)
			}
			if err := lock.HandOver(); !errors.Is(err, dlock.ErrReleased) {
				t.Errorf("the second HandOver returned %v", err)
			}
			next, err := other.Resume(ctx, "job", lock.Owner(), lock.Token(), dlock.WithLease(lease))
			if err != nil {
				t.Fatal(err)
			}
			one.Close()
			time.Sleep(lease + time.Second)
			if next.Token() != lock.Token() || next.Remaining() <= 0 {
				t.Fatalf("the second client has lost the lock: %v", context.Cause(next.Context()))
			}
			isHeld(t, other, "job")
			release(t, next)
			s.isFree("job")
			if _, err := other.Resume(ctx, "job", lock.Owner(), lock.Token()); !errors.Is(err, dlock.ErrLost) {
				t.Errorf("Resume of a released hold returned %v", err)
			}
		})
	}
}

func TestPermitsAndReadersAreResumed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, other := newClient(t, s.address()), newClient(t, s.address())
	ctx := context.Background()
	reader, err := one.RLock(ctx, "read")
	if err != nil {
		t.Fatal(err)
	}
	slot, err := one.Semaphore("pool", 3).Acquire(ctx, dlock.WithSlot())
	if err != nil {
		t.Fatal(err)
	}
	permits, err := one.Semaphore("permits", 5).Acquire(ctx, dlock.WithPermits(3), dlock.WithMaxHold(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []*dlock.Lock{reader, slot, permits} {
		if err := lock.HandOver(); err != nil {
			t.Fatal(err)
		}
		next, err := other.Resume(ctx, lock.Name(), lock.Owner(), lock.Token())
		if err != nil {
			t.Fatal(err)
		}
		if next.Slot() != lock.Slot() || next.Remaining() <= 0 || next.Remaining() > time.Minute {
			t.Errorf("%s is resumed with slot %d, for %v", lock.Name(), next.Slot(), next.Remaining())
		}
		release(t, next)
		s.isFree(lock.Name())
	}
}

func TestResumeRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client, without := newClient(t, s.address()), newClient(t, s.address(), dlock.WithoutSession())
	ctx := context.Background()
	lock := acquire(t, client, "job")
	for what, test := range map[string]struct {
		client *dlock.Client
		owner  string
		token  int64
		// nil: an error, but not ErrLost.
		wanted error
	}{
		"another token":               {client, lock.Owner(), lock.Token() + 1, dlock.ErrLost},
		"another owner":               {client, "somebody", lock.Token(), dlock.ErrLost},
		"no owner":                    {client, "", lock.Token(), nil},
		"no token":                    {client, lock.Owner(), 0, nil},
		"a hold that a session keeps": {without, lock.Owner(), lock.Token(), nil},
	} {
		_, err := test.client.Resume(ctx, "job", test.owner, test.token)
		if err == nil || test.wanted != nil && !errors.Is(err, test.wanted) || test.wanted == nil && errors.Is(err, dlock.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if lock.Remaining() <= 0 {
		t.Error("a refused Resume has cost the first client its lock")
	}
	s.call("SET", "job", "text")
	if _, err := client.Resume(ctx, "job", lock.Owner(), lock.Token()); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("Resume of an overwritten lock returned %v", err)
	}
	nowhere := newClient(t, "127.0.0.1:1")
	if _, err := nowhere.Resume(ctx, "job", lock.Owner(), lock.Token()); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Resume without a server returned %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := nowhere.Resume(canceled, "job", lock.Owner(), lock.Token()); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled Resume returned %v", err)
	}
}

// tardy is a connection whose replies to renewals come after 400 ms, when the shortest lease of 300 ms is over.
type tardy struct{ dlock.Conn }

func (t tardy) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	replies, err := t.Conn.Do(ctx, commands...)
	if commands[0][0] == "DLOCK.RENEW" {
		time.Sleep(400 * time.Millisecond)
	}
	return replies, err
}

func TestALeaseThatIsOverWhenItsAnswerComesIsNotResumed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	lock := acquire(t, newClient(t, s.address(), dlock.WithoutSession()), "job")
	if err := lock.HandOver(); err != nil {
		t.Fatal(err)
	}
	wired := dlock.Wired(s.address())
	client, err := dlock.Over(func(ctx context.Context) (dlock.Conn, error) {
		c, err := wired(ctx)
		return tardy{c}, err
	}, dlock.WithoutSession())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 350*time.Millisecond)
	defer cancel()
	_, err = client.Resume(ctx, "job", lock.Owner(), lock.Token(), dlock.WithLease(300*time.Millisecond))
	if !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), "the time is over") {
		t.Fatalf("Resume returned %v", err)
	}
}

func TestAHoldStaysIfTheClientIsClosedBeforeItIsResumed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	lock := acquire(t, newClient(t, s.address(), dlock.WithoutSession()), "job")
	if err := lock.HandOver(); err != nil {
		t.Fatal(err)
	}
	wired, isAsked := dlock.Wired(s.address()), make(chan struct{})
	client, err := dlock.Over(func(ctx context.Context) (dlock.Conn, error) {
		close(isAsked)
		c, err := wired(ctx)
		return tardy{c}, err
	}, dlock.WithoutSession())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-isAsked
		client.Close()
	}()
	ctx := context.Background()
	if _, err := client.Resume(ctx, "job", lock.Owner(), lock.Token()); !errors.Is(err, dlock.ErrClosed) {
		t.Fatalf("Resume of a closed client returned %v", err)
	}
	next, err := newClient(t, s.address(), dlock.WithoutSession()).Resume(ctx, "job", lock.Owner(), lock.Token())
	if err != nil {
		t.Fatal(err)
	}
	release(t, next)
}
