package dlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

func TestOneSessionKeepsAllLocksOfAClient(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const session = 9 * time.Second
	client := newClient(t, s.address(), dlock.WithSession(session))
	var locks []*dlock.Lock
	for i := range 50 {
		locks = append(locks, acquire(t, client, fmt.Sprintf("job:%d", i), dlock.WithLease(session)))
	}
	if open := s.info("dlock", "dlock_named_sessions"); open != "1" {
		t.Fatalf("%s sessions", open)
	}
	before := s.info("commandstats", "cmdstat_dlock.renew")
	time.Sleep(session + time.Second)
	for _, lock := range locks {
		if lock.Context().Err() != nil {
			t.Fatalf("lost: %v", context.Cause(lock.Context()))
		}
	}
	if after := s.info("commandstats", "cmdstat_dlock.renew"); after != before {
		t.Fatalf("locks were renewed one by one: %s", after)
	}
	for _, lock := range locks {
		release(t, lock)
	}
	eventually(t, "the session has ended", func() bool { return s.info("dlock", "dlock_named_sessions") == "0" })
}

func TestASessionThatEndedOnTheServerLosesItsLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithSession(time.Second))
	lock := acquire(t, client, "job")
	var id string
	for _, word := range strings.Fields(s.call("DLOCK.INFO", "job", "FULL")) {
		if len(word) == 32 && word != lock.Owner() {
			id = word
		}
	}
	s.call("DLOCK.SESSION", id, "CLOSE")
	<-lock.Context().Done()
	if !errors.Is(context.Cause(lock.Context()), dlock.ErrLost) {
		t.Fatalf("another cause: %v", context.Cause(lock.Context()))
	}
	release(t, acquire(t, client, "job"))
}

func TestAProgramThatIsKilledLosesItsLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), "DLOCK_GO_HOLDS="+s.address())
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if line != "holds <nil>\n" {
		t.Fatalf("%q: %v", line, err)
	}
	holder.Process.Kill()
	holder.Wait()
	// The lease is longer than the test may take.
	release(t, acquire(t, newClient(t, s.address()), "job"))
}

func TestAReplicaThatTakesOverKeepsTheLocks(t *testing.T) {
	t.Parallel()
	primary := startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1", fmt.Sprint(primary.port))
	eventually(t, "the replica is in sync", func() bool { return replica.info("replication", "master_link_status") == "up" })
	way := startProxy(t, primary.address())
	client := newClient(t, way.address(), dlock.WithSession(15*time.Second))
	lock := acquire(t, client, "job", dlock.WithLease(time.Minute))
	eventually(t, "the replica has the lock", func() bool { return replica.call("EXISTS", "job") == ":1" })
	primary.stop()
	replica.call("REPLICAOF", "NO", "ONE")
	way.lead(replica.address())
	eventually(t, "the lock is bound there", func() bool { return replica.info("dlock", "dlock_sessions") == "1" })
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
	replica.isFree("job")
}

func TestALockThatIsOldSurvivesARestart(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	const session = 12 * time.Second
	client := newClient(t, s.address(), dlock.WithSession(session))
	lock := acquire(t, client, "job", dlock.WithLease(time.Minute))
	time.Sleep(session + session/20) // The grant proves nothing any more; the heartbeats do.
	s.stop()
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock is bound again, or lost", func() bool {
		return lock.Context().Err() != nil || s.info("dlock", "dlock_sessions") == "1"
	})
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
	s.isFree("job")
}

func TestACapOfTheServerEndsALock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	if strings.HasPrefix(s.call("CONFIG", "SET", "dlock.max-hold", "5000"), "-") {
		t.Fatal("this module has no dlock.max-hold")
	}
	kept := newClient(t, s.address(), dlock.WithSession(time.Minute))
	renewed := newClient(t, s.address(), dlock.WithoutSession())
	next := newClient(t, s.address(), dlock.WithDefaults(dlock.WithLease(time.Second)))
	var work sync.WaitGroup
	for name, client := range map[string]*dlock.Client{"kept": kept, "renewed": renewed} {
		work.Add(1)
		go func() {
			defer work.Done()
			began := time.Now()
			lock, err := client.Lock(context.Background(), name, dlock.WithLease(3*time.Second))
			if err != nil {
				t.Error(err)
				return
			}
			if other, err := next.Lock(context.Background(), name); err != nil || lock.Remaining() != 0 {
				t.Errorf("%s: held by two: %v, %v", name, lock.Remaining(), err)
			} else if took := time.Since(began); took < 7*time.Second/2 {
				t.Errorf("%s: lost after %v", name, took)
			} else if err := unlock(other); err != nil {
				t.Error(err)
			}
			<-lock.Context().Done()
			if !errors.Is(context.Cause(lock.Context()), dlock.ErrLost) {
				t.Errorf("%s: another cause: %v", name, context.Cause(lock.Context()))
			}
		}()
	}
	work.Wait()
}

func TestAReleaseThatFailedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithSession(time.Minute))
	lock := acquire(t, client, "job", dlock.WithLease(10*time.Minute))
	s.signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := lock.Unlock(ctx); !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error is %v", err)
	}
	s.signal(syscall.SIGCONT)
	s.isFree("job")
}

// The session would keep the lock for as long as the client lives.
func TestAReleaseThatTheServerRefusesForAWhileIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithSession(time.Minute))
	lock := acquire(t, client, "job", dlock.WithLease(10*time.Minute))
	s.call("CONFIG", "SET", "min-replicas-to-write", "1")
	var refusal dlock.ServerError
	if err := lock.Unlock(context.Background()); !errors.As(err, &refusal) || refusal.Code() != "NOREPLICAS" {
		t.Fatalf("the error is %v", err)
	}
	time.Sleep(time.Second) // The session tries, too, and is refused.
	s.call("CONFIG", "SET", "min-replicas-to-write", "0")
	s.isFree("job")
}

func TestLocksWithoutASessionAreRenewed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithoutSession())
	const lease = 9 * time.Second
	lock := acquire(t, client, "job", dlock.WithLease(lease))
	time.Sleep(lease + time.Second)
	if lock.Context().Err() != nil || s.info("dlock", "dlock_named_sessions") != "0" {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
}

func TestReadersShareAndPermitsAreCounted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	ctx := context.Background()
	var readers []*dlock.Lock
	for range 2 {
		reader, err := client.RLock(ctx, "doc")
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, reader)
	}
	refused(t, func() (*dlock.Lock, error) { return client.WLock(ctx, "doc", dlock.WithWait(0)) }) // Readers have it.
	for _, reader := range readers {
		release(t, reader)
	}
	writer, err := client.WLock(ctx, "doc")
	if err != nil {
		t.Fatal(err)
	}
	release(t, writer)

	permits := client.Semaphore("permits", 3)
	two, err := permits.Acquire(ctx, dlock.WithPermits(2))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, func() (*dlock.Lock, error) { return permits.TryAcquire(ctx, dlock.WithPermits(2)) }) // 4 of 3
	if _, err := permits.Acquire(ctx, dlock.WithPermits(4)); err == nil {
		t.Fatal("4 of 3")
	}
	release(t, two)
	s.isFree("permits")
}

func TestSeveralLocksAreTakenTogether(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	both, err := client.LockAll(context.Background(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	isHeld(t, client, "b")
	release(t, both)
	s.isFree("a")
	s.isFree("b")
}

func TestALockerTakesTurns(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	var locker sync.Locker = client.Locker(context.Background(), "job")
	number := 0
	var work sync.WaitGroup
	for range 20 {
		work.Add(1)
		go func() {
			defer work.Done()
			locker.Lock()
			defer locker.Unlock()
			number++
		}()
	}
	work.Wait()
	if number != 20 {
		t.Fatalf("%d turns", number)
	}
	s.isFree("job")
}

func TestALockerPanicsIfItCannotLock(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	locker := newClient(t, "127.0.0.1:1").Locker(ctx, "job")
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, context.Canceled) {
			t.Fatalf("no panic: %v", err)
		}
	}()
	locker.Lock()
}

func TestAServerThatCannotWriteForAWhileKeepsTheLocks(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	client := newClient(t, s.address(), dlock.WithSession(20*time.Second))
	lock := acquire(t, client, "job")
	s.stop()
	s.more = append(s.more, "--min-replicas-to-write", "1")
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client tries to bind the lock", func() bool { return s.info("commandstats", "cmdstat_dlock.renew") != "" })
	s.call("CONFIG", "SET", "min-replicas-to-write", "0")
	eventually(t, "the lock is bound again, or lost", func() bool {
		return lock.Context().Err() != nil || s.info("dlock", "dlock_sessions") == "1"
	})
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
}

func TestALockerThatLostItsLockDoesNotReleaseTheNext(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithSession(6*time.Second))
	locker := client.Locker(context.Background(), "job")
	locker.Lock()
	first := locker.Held()
	s.call("DEL", "job")
	locker.Lock()
	second := locker.Held()
	eventually(t, "the first is lost", func() bool { return first.Context().Err() != nil })
	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, dlock.ErrLost) {
				t.Errorf("no panic: %v", err)
			}
		}()
		locker.Unlock() // of the first lock
	}()
	if second.Context().Err() != nil {
		t.Fatalf("the second has ended: %v", context.Cause(second.Context()))
	}
	locker.Unlock()
	s.isFree("job")
}
