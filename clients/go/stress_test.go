package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// crowd returns how many goroutines a stress test has: DLOCK_STRESS, or as many as the gate has time for.
func crowd(t *testing.T) int {
	t.Helper()
	number, err := strconv.Atoi(os.Getenv("DLOCK_STRESS"))
	if err != nil {
		return 500
	}
	return number
}

// faults are what happens to the server and to the connections.
type faults struct {
	// Closed when the server was killed and is back.
	killed chan struct{}
	ended  chan struct{}
	work   sync.WaitGroup
}

// startFaults cuts all connections again and again, and kills the server once. It is back with all its locks.
func startFaults(s *server, way *proxy) *faults {
	f := &faults{killed: make(chan struct{}), ended: make(chan struct{})}
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		for turn := 0; ; turn++ {
			select {
			case <-f.ended:
				return
			case <-time.After(400 * time.Millisecond):
			}
			way.lead(s.address())
			if turn == 1 {
				s.stop()
				if err := s.begin(); err != nil {
					s.t.Error(err)
				}
				close(f.killed)
			}
		}
	}()
	return f
}

func (f *faults) end() {
	close(f.ended)
	f.work.Wait()
}

func (f *faults) haveKilled() bool {
	select {
	case <-f.killed:
		return true
	default:
		return false
	}
}

// nothingIsLeft compares with before: goroutines, connections, sessions, locks.
func nothingIsLeft(t *testing.T, s *server, goroutines int) {
	t.Helper()
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "the connections have ended", func() bool { return s.info("clients", "connected_clients") == "1" })
	eventually(t, "the session has ended", func() bool { return s.info("dlock", "dlock_named_sessions") == "0" })
	eventually(t, "no lock is left", func() bool { return s.call("DBSIZE") == ":0" })
	s.waiters(0)
}

// The tests below are not parallel: they count goroutines.

func TestACrowdTakesTurnsWhileConnectionsAndTheServerDie(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	way := startProxy(t, s.address())
	client := newClient(t, way.address())
	f := startFaults(s, way)
	var inside, turns, last atomic.Int64
	var work sync.WaitGroup
	for range crowd(t) {
		work.Add(1)
		go func() {
			defer work.Done()
			for again := true; again; again = !f.haveKilled() {
				lock, err := client.Lock(context.Background(), "job")
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the lock")
				}
				if before := last.Swap(lock.Token()); before >= lock.Token() {
					t.Errorf("token %d after %d", lock.Token(), before)
				}
				turns.Add(1)
				inside.Add(-1)
				if err := unlock(lock); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	work.Wait()
	f.end()
	t.Logf("%d turns of %d goroutines", turns.Load(), crowd(t))
	client.Close()
	way.close()
	nothingIsLeft(t, s, goroutines)
}

func TestACrowdHoldsItsLocksWhileConnectionsAndTheServerDie(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	way := startProxy(t, s.address())
	session := 6 * time.Second // 500 goroutines with the race detector need as much on a busy machine.
	if crowd(t) > 1000 {
		session = 10 * time.Second
	}
	client := newClient(t, way.address(), dlock.WithSession(session))
	f := startFaults(s, way)
	var work, holding sync.WaitGroup
	holding.Add(crowd(t))
	all := make(chan struct{})
	for i := range crowd(t) {
		work.Add(1)
		go func() {
			defer work.Done()
			lock, err := client.Lock(context.Background(), fmt.Sprintf("job:%d", i))
			holding.Done()
			if err != nil {
				t.Error(err)
				return
			}
			<-all
			if lock.Context().Err() != nil {
				t.Errorf("lost: %v", context.Cause(lock.Context()))
			}
			if err := unlock(lock); err != nil {
				t.Error(err)
			}
		}()
	}
	holding.Wait()
	<-f.killed
	time.Sleep(session) // Only heartbeats that succeeded meanwhile have kept the locks.
	close(all)
	work.Wait()
	f.end()
	client.Close()
	way.close()
	nothingIsLeft(t, s, goroutines)
}

func TestACrowdThatIsCanceledLeavesNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	s := startServer(t)
	way := startProxy(t, s.address())
	client := newClient(t, way.address())
	held := acquire(t, client, "job", dlock.WithLease(10*time.Minute))
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for range crowd(t) {
		work.Add(1)
		go func() {
			defer work.Done()
			if _, err := client.Lock(ctx, "job", dlock.WithLease(10*time.Minute)); !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v", err)
			}
		}()
	}
	s.waiters(16)
	cancel()
	work.Wait()
	s.waiters(0)
	release(t, held)
	client.Close()
	way.close()
	nothingIsLeft(t, s, goroutines)
}
