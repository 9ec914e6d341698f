package dlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// A program without dlock that writes to the key takes the lock away. The server's answer then (WRONGTYPE) says so.
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

// Unlock returns ErrLost even if the reply to the first copy of the release gets lost.
func TestUnlockOfALostLockSaysSoEvenIfItsReplyIsLost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.address())
	client := newClient(t, p.address())
	for _, lease := range []time.Duration{300 * time.Millisecond, time.Minute} {
		lock := acquire(t, client, "job", dlock.WithLease(lease), dlock.WithoutRenewal())
		if lease == time.Minute {
			s.call("DEL", "job")
			if err := extend(lock, lease); !errors.Is(err, dlock.ErrLost) {
				t.Fatal(err)
			}
		}
		<-lock.Context().Done()
		eventually(t, "another one has it", func() bool { return s.call("DLOCK.ACQUIRE", "job", "other") != "$-1" })
		p.loses("$-1", 0)
		if err := lock.Unlock(context.Background()); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("lease of %v: %v", lease, err)
		}
		if p.falls.Load() != nil {
			t.Error("no reply was lost")
		}
		s.call("DEL", "job")
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
	if reply := s.call("EXISTS", "job"); reply != ":0" {
		t.Error("it is held")
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
	watch := startWatch()
	err := lock.Unlock(ctx)
	watch.within(t, 1250*time.Millisecond, "a release")
	if !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	thaw(s)
	s.isFree("job")
}

// A program without dlock has a lock of the same name: a string that it has set with NX. It is held, and has no queue.
func TestALockOfAnOldProgramIsHeld(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	ctx := context.Background()
	takers := map[string]func(name string, options ...dlock.Option) (*dlock.Lock, error){
		"lock":  func(name string, o ...dlock.Option) (*dlock.Lock, error) { return client.Lock(ctx, name, o...) },
		"read":  func(name string, o ...dlock.Option) (*dlock.Lock, error) { return client.RLock(ctx, name, o...) },
		"write": func(name string, o ...dlock.Option) (*dlock.Lock, error) { return client.WLock(ctx, name, o...) },
		"semaphore": func(name string, o ...dlock.Option) (*dlock.Lock, error) {
			return client.Semaphore(name, 2).Acquire(ctx, o...)
		},
		"all": func(name string, o ...dlock.Option) (*dlock.Lock, error) {
			return client.LockAll(ctx, []string{name + "2", name}, o...)
		},
	}
	for name, take := range takers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.call("SET", name, "old", "NX")
			for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
				began := time.Now()
				_, err := take(name, dlock.WithWait(wait))
				// On a busy machine the answer may come too late, and counts as none: then the server is asked again.
				for errors.Is(err, dlock.ErrUnreachable) && time.Since(began) < patience {
					_, err = take(name, dlock.WithWait(wait))
				}
				var answer dlock.ServerError
				if !errors.Is(err, dlock.ErrNotGranted) || !errors.As(err, &answer) || answer.Code() != "WRONGTYPE" {
					t.Errorf("wait of %v: %v", wait, err)
				}
				if time.Since(began) < wait {
					t.Errorf("wait of %v: it took %v", wait, time.Since(began))
				}
			}
			granted := make(chan error, 1)
			go func() {
				lock, err := take(name)
				if err == nil {
					err = lock.Unlock(ctx)
				}
				granted <- err
			}()
			time.Sleep(300 * time.Millisecond)
			s.call("DEL", name)
			if err := <-granted; err != nil {
				t.Errorf("a wait: %v", err)
			}
			s.isFree(name)
		})
	}
}

// A program without dlock may take the lock while a client waits for it.
func TestAWaitGoesOnWhenAnOldProgramTakesTheKey(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client, o := newClient(t, s.address()), newOther(s)
	o.holds()
	granted := make(chan error, 1)
	go func() {
		lock, err := client.Lock(context.Background(), "job")
		if err == nil {
			err = unlock(lock)
		}
		granted <- err
	}()
	s.waiters(1)
	s.call("SET", "job", "old")
	time.Sleep(200 * time.Millisecond)
	select {
	case err := <-granted:
		t.Fatalf("ended: %v", err)
	default:
	}
	s.call("DEL", "job")
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}
