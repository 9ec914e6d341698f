package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// A server may grant a lock to a connection whose end it has not yet seen. Not parallel: this test counts goroutines.
func TestAClientThatIsClosedWhileItIsUsedLeavesNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	s := startServer(t)
	options := map[string][]dlock.ClientOption{"session": nil, "no session": {dlock.WithoutSession()}}
	for name, more := range options {
		for range 20 {
			client := newClient(t, s.address(), append(more, dlock.WithDefaults(dlock.WithLease(10*time.Minute)))...)
			var work sync.WaitGroup
			for i := range 40 {
				work.Add(1)
				go func() {
					defer work.Done()
					for {
						ctx, cancel := context.WithCancel(context.Background())
						if i%4 == 0 {
							time.AfterFunc(rand.N(3*time.Millisecond), cancel)
						}
						lock, err := client.Lock(ctx, fmt.Sprintf("%s:%d", name, i%5))
						if err == nil {
							err = unlock(lock)
						}
						cancel()
						switch {
						case errors.Is(err, dlock.ErrClosed), errors.Is(err, dlock.ErrReleased):
							return
						case err != nil && !errors.Is(err, context.Canceled):
							t.Errorf("%s: %v", name, err)
							return
						}
					}
				}()
			}
			time.Sleep(rand.N(30 * time.Millisecond))
			client.Close()
			work.Wait()
		}
	}
	nothingIsLeft(t, s, goroutines)
}

// Close gives the releases a second, and another one to what is left in the background.
func TestCloseEndsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithoutSession())
	var locks []*dlock.Lock
	for i := range 200 {
		locks = append(locks, acquire(t, client, fmt.Sprintf("job:%d", i)))
	}
	s.signal(syscall.SIGSTOP)
	defer s.signal(syscall.SIGCONT)
	var work sync.WaitGroup
	for _, lock := range locks[:100] {
		work.Add(1)
		go func() {
			defer work.Done()
			lock.Unlock(context.Background())
		}()
	}
	watch := startWatch()
	client.Close()
	watch.within(t, 4*time.Second, "Close")
	work.Wait()
	watch.within(t, 5*time.Second, "Close and the unlocks")
}

// When its time is over, Close sends nothing any more, and so stays for no late copy either.
func TestCloseOfAClientWhoseServerHangsStaysForNoCopy(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithoutSession())
	release(t, acquire(t, client, "job"))
	s.signal(syscall.SIGSTOP)
	defer s.signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.Lock(ctx, "job"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Fatal(err)
	}
	watch := startWatch()
	client.Close()
	watch.within(t, 1400*time.Millisecond, "Close")
}

// A caller that gives up an unlock or a wait leaves the other connections of the pool usable.
func TestACancellationClosesNoOtherConnections(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	held := acquire(t, client, "job")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	connections := func() int {
		number, _ := strconv.Atoi(s.info("stats", "total_connections_received"))
		return number
	}
	before := connections()
	for range 20 {
		lock := acquire(t, client, "other")
		lock.Unlock(ended)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(5*time.Millisecond, cancel)
		if _, err := client.Lock(ctx, "job"); !errors.Is(err, context.Canceled) {
			t.Fatalf("the canceled Lock returned %v", err)
		}
	}
	// Each of the 20 waits that are given up costs its connection.
	if made := connections() - before; made > 30 {
		t.Fatalf("the client made %d connections for 20 waits, more than 30", made)
	}
	release(t, held)
}

func TestCloseWaitsForAnUnlock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for range 20 {
		client := newClient(t, s.address(), dlock.WithoutSession())
		var locks []*dlock.Lock
		for i := range 50 {
			locks = append(locks, acquire(t, client, fmt.Sprintf("job:%d", i), dlock.WithLease(10*time.Minute)))
		}
		var work sync.WaitGroup
		for _, lock := range locks {
			work.Add(1)
			go func() {
				defer work.Done()
				if err := unlock(lock); err != nil && !errors.Is(err, dlock.ErrReleased) {
					t.Error(err)
				}
			}()
		}
		runtime.Gosched()
		client.Close()
		work.Wait()
		if left := s.call("DBSIZE"); left != ":0" {
			t.Fatalf("DBSIZE is %s: locks are left", left)
		}
	}
}
