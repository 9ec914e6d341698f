package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

func TestALockExcludesUntilItIsReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	first := acquire(t, client, "job")
	isHeld(t, client, "job")
	if first.Token() == 0 || first.Remaining() <= 0 || first.Context().Err() != nil {
		t.Fatalf("not held: %d, %v", first.Token(), first.Remaining())
	}
	release(t, first)
	if !errors.Is(context.Cause(first.Context()), dlock.ErrReleased) {
		t.Fatalf("the context goes on: %v", context.Cause(first.Context()))
	}
	if err := first.Unlock(context.Background()); !errors.Is(err, dlock.ErrReleased) {
		t.Fatalf("released twice: %v", err)
	}
	second := acquire(t, client, "job")
	if second.Token() <= first.Token() {
		t.Fatalf("token %d after %d", second.Token(), first.Token())
	}
	release(t, second)
	s.isFree("job")
}

func TestADeadlineEndsTheWaitAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	held := acquire(t, client, "job")
	eventually(t, "an answer in time", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := client.Lock(ctx, "job")
		if !errors.Is(err, dlock.ErrNotGranted) && !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("not refused: %v", err)
		}
		return errors.Is(err, dlock.ErrNotGranted)
	})
	s.waiters(0)
	release(t, held)
	s.isFree("job")
}

func TestACanceledWaitReturnsAtOnceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	held := acquire(t, client, "job", dlock.WithLease(10*time.Minute))
	reason := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	failed := make(chan error)
	go func() {
		_, err := client.Lock(ctx, "job", dlock.WithLease(10*time.Minute))
		failed <- err
	}()
	s.waiters(1)
	cancel(reason)
	if err := <-failed; !errors.Is(err, reason) {
		t.Fatalf("another reason: %v", err)
	}
	s.waiters(0)
	release(t, held)
	s.isFree("job")
}

func TestALockIsRenewedUntilItIsReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	const lease = 9 * time.Second
	lock := acquire(t, client, "job", dlock.WithLease(lease))
	time.Sleep(lease + time.Second)
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
	s.isFree("job")
}

// After a failover, the new primary may have no replica yet.
func TestARenewalThatIsRefusedForNowIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithoutSession())
	lock := acquire(t, client, "job", dlock.WithLease(6*time.Second))
	s.call("CONFIG", "SET", "min-replicas-to-write", "1")
	eventually(t, "a renewal is refused", func() bool { return s.info("errorstats", "errorstat_NOREPLICAS") != "" })
	s.call("CONFIG", "SET", "min-replicas-to-write", "0")
	eventually(t, "the next one succeeds", func() bool { return s.info("dlock", "dlock_renewals") != "0" })
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
}

func TestALockThatIsDeletedIsLost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	lock := acquire(t, client, "job", dlock.WithLease(900*time.Millisecond))
	s.call("DEL", "job")
	select {
	case <-lock.Context().Done():
	case <-time.After(patience):
		t.Fatal("not told")
	}
	if !errors.Is(context.Cause(lock.Context()), dlock.ErrLost) {
		t.Fatalf("another cause: %v", context.Cause(lock.Context()))
	}
	if err := lock.Unlock(context.Background()); !errors.Is(err, dlock.ErrLost) {
		t.Fatalf("released: %v", err)
	}
}

func TestAFixedLeaseEnds(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	lock := acquire(t, client, "job", dlock.WithLease(400*time.Millisecond), dlock.WithoutRenewal())
	next := acquire(t, client, "job")
	if lock.Remaining() != 0 {
		t.Fatal("held by two")
	}
	<-lock.Context().Done()
	if !errors.Is(context.Cause(lock.Context()), dlock.ErrLost) {
		t.Fatalf("another cause: %v", context.Cause(lock.Context()))
	}
	release(t, next)
}

func TestAServerThatHangsLosesTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	lock := acquire(t, client, "job", dlock.WithLease(900*time.Millisecond))
	s.signal(syscall.SIGSTOP)
	defer s.signal(syscall.SIGCONT)
	select {
	case <-lock.Context().Done():
	case <-time.After(patience):
		t.Fatal("not told")
	}
	if lock.Remaining() != 0 {
		t.Fatal("remains")
	}
}

func TestAClosedClientReleasesItsLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	held := acquire(t, client, "one", dlock.WithLease(10*time.Minute))
	failed := make(chan error)
	go func() {
		_, err := client.Lock(context.Background(), "one")
		failed <- err
	}()
	s.waiters(1)
	client.Close()
	if held.Context().Err() == nil {
		t.Fatal("still held")
	}
	if err := <-failed; err != nil && !errors.Is(err, dlock.ErrClosed) {
		t.Fatal(err)
	}
	s.isFree("one")
	if _, err := client.Lock(context.Background(), "one"); !errors.Is(err, dlock.ErrClosed) {
		t.Fatalf("the error is %v", err)
	}
}

func TestManyGoroutinesTakeTurns(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	before := runtime.NumGoroutine()
	client := newClient(t, s.address())
	var inside, turns atomic.Int32
	var work sync.WaitGroup
	for range 300 {
		work.Add(1)
		go func() {
			defer work.Done()
			lock, err := client.Lock(context.Background(), "job")
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			turns.Add(1)
			inside.Add(-1)
			if err := unlock(lock); err != nil {
				t.Error(err)
			}
		}()
	}
	work.Wait()
	if turns.Load() != 300 {
		t.Fatalf("%d turns", turns.Load())
	}
	client.Close()
	// Tests that run beside this one have goroutines, too. If each of the 300 left one, there would be more than this.
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() < before+250 })
	eventually(t, "the connections have ended", func() bool { return s.info("clients", "connected_clients") == "1" })
}

func TestUsersAndPasswords(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.call("ACL", "SETUSER", "worker", "on", ">secret", "~job*", "+dlock.acquire", "+dlock.release", "+dlock.renew",
		"+dlock.session", "+dlock.check")
	client := newClient(t, fmt.Sprintf("redis://worker:secret@%s", s.address()))
	release(t, acquire(t, client, "job"))
	var answer dlock.ServerError
	if _, err := client.Lock(context.Background(), "other"); !errors.As(err, &answer) || answer.Code() != "NOPERM" {
		t.Fatalf("the error is %v", err)
	}
	wrong := newClient(t, s.address(), dlock.WithAuth("worker", "wrong"))
	if _, err := wrong.Lock(context.Background(), "job"); !errors.As(err, &answer) || answer.Code() != "WRONGPASS" {
		t.Fatalf("the error is %v", err)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "ftp://host", "redis://host/none", "redis://"} {
		if client, err := dlock.New(address); err == nil {
			client.Close()
			t.Errorf("%q is accepted", address)
		}
	}
	client := newClient(t, "127.0.0.1")
	if _, err := client.Lock(context.Background(), ""); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty name: %v", err)
	}
	if _, err := client.Lock(context.Background(), "job", dlock.WithLease(time.Millisecond)); err == nil {
		t.Error("a lease of 1 ms is accepted")
	}
}

func TestAUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "socket")
	s := startServer(t, "--unixsocket", socket)
	open := newClient(t, "unix://"+socket)
	lock := acquire(t, open, "job")
	s.cleansUpAtOnce(open)
	release(t, lock)
	s.call("ACL", "SETUSER", "default", ">secret")
	client := newClient(t, "unix://:secret@"+socket)
	release(t, acquire(t, client, "job"))
	if _, err := dlock.New("unix://"); err == nil {
		t.Fatal("a URL without a path is accepted")
	}
}

func TestADeadlineThatHasPassedIsInTheError(t *testing.T) {
	t.Parallel()
	reason := errors.New("too late")
	ctx, cancel := context.WithDeadlineCause(context.Background(), time.Now().Add(-time.Second), reason)
	defer cancel()
	_, err := newClient(t, "127.0.0.1:1").Lock(ctx, "job")
	for _, each := range []error{dlock.ErrUnreachable, context.DeadlineExceeded, reason} {
		if !errors.Is(err, each) {
			t.Errorf("the error is %v", err)
		}
	}
}
