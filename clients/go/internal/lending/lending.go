package lending

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// The time of the sessions: a machine that stalls for two thirds of it loses the locks.
const session = 6 * time.Second

// Connections returns the connections of another client to a server, and what ends that client.
type Connections func(address string) (open func(context.Context) (dlock.Conn, error), end func())

// Test tests a client over these connections.
func Test(t *testing.T, connections Connections) {
	tests := map[string]func(*testing.T, *server, *dlock.Client){
		"a lock is granted in turn":              inTurn,
		"a wait that is canceled leaves":         canceled,
		"a wait with a limit ends":               limited,
		"heartbeats keep a lock":                 kept,
		"a server that hangs is noticed":         hung,
		"a crowd takes turns":                    crowd,
		"maps, slices and errors are read":       replies,
		"connections are lost, and nothing else": cut,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			s := startServer(t)
			open, end := connections(s.address)
			client, err := dlock.Over(open, dlock.WithSession(session))
			if err != nil {
				t.Fatal(err)
			}
			test(t, s, client)
			client.Close()
			s.waiters(0)
			s.soon("no lock is left", func() bool { return s.ask("DBSIZE") == ":0" })
			end()
			s.soon("the connections have ended", func() bool {
				return strings.Contains(s.ask("INFO clients"), "connected_clients:1\r\n") ||
					strings.Contains(s.ask("INFO clients"), "connected_clients:1\n")
			})
			s.soon("the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
		})
	}
}

func lock(t *testing.T, client *dlock.Client, name string, options ...dlock.Option) *dlock.Lock {
	t.Helper()
	l, err := client.Lock(context.Background(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l *dlock.Lock) {
	t.Helper()
	if err := unlocks(l); err != nil {
		t.Fatal(err)
	}
}

// unlocks releases a lock, with more time than an unlock has by itself: on a busy machine the answer comes late.
func unlocks(l *dlock.Lock) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return l.Unlock(ctx)
}

func inTurn(t *testing.T, s *server, client *dlock.Client) {
	first := lock(t, client, "job")
	s.soon("an answer to a try", func() bool {
		_, err := client.TryLock(context.Background(), "job")
		if !errors.Is(err, dlock.ErrNotGranted) && !errors.Is(err, dlock.ErrUnreachable) {
			t.Fatalf("not refused: %v", err)
		}
		return errors.Is(err, dlock.ErrNotGranted)
	})
	granted := make(chan *dlock.Lock, 2)
	for waiting := range 2 {
		go func() {
			l, err := client.Lock(context.Background(), "job")
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		s.waiters(waiting + 1)
	}
	last := first.Token()
	unlock(t, first)
	for range 2 {
		next := <-granted
		if next == nil {
			t.FailNow()
		}
		if next.Token() <= last {
			t.Fatalf("token %d after %d", next.Token(), last)
		}
		last = next.Token()
		unlock(t, next)
	}
	s.isFree("job")
}

func canceled(t *testing.T, s *server, client *dlock.Client) {
	held := lock(t, client, "job")
	reason := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	failed := make(chan error)
	go func() {
		_, err := client.Lock(ctx, "job", dlock.WithLease(10*time.Minute))
		failed <- err
	}()
	s.waiters(1)
	began := time.Now()
	cancel(reason)
	if err := <-failed; !errors.Is(err, reason) {
		t.Fatalf("another reason: %v", err)
	}
	t.Logf("returned after %v", time.Since(began))
	s.waiters(0)
	unlock(t, held)
	s.isFree("job")
}

func limited(t *testing.T, s *server, client *dlock.Client) {
	held := lock(t, client, "job")
	s.soon("an answer in time", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := client.Lock(ctx, "job")
		if !errors.Is(err, dlock.ErrNotGranted) && !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("not refused: %v", err)
		}
		return errors.Is(err, dlock.ErrNotGranted)
	})
	s.waiters(0)
	unlock(t, held)
}

func kept(t *testing.T, s *server, client *dlock.Client) {
	l := lock(t, client, "job", dlock.WithLease(session))
	time.Sleep(3 * session / 2)
	if l.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(l.Context()))
	}
	if holder, err := client.Holder(context.Background(), "job"); err != nil || holder == nil || holder.Token != l.Token() {
		t.Fatalf("held by %v: %v", holder, err)
	}
	unlock(t, l)
	s.isFree("job")
}

func hung(t *testing.T, s *server, client *dlock.Client) {
	held := lock(t, client, "job")
	failed := make(chan error)
	go func() {
		_, err := client.Lock(context.Background(), "job", dlock.WithLease(time.Second), dlock.WithWait(time.Second))
		failed <- err
	}()
	s.waiters(1)
	goesOn := s.hangs()
	defer goesOn()
	if err := <-failed; !errors.Is(err, dlock.ErrNotGranted) { // The server said so before it hung.
		t.Fatalf("the error is %v", err)
	}
	<-held.Context().Done()
	if !errors.Is(context.Cause(held.Context()), dlock.ErrLost) {
		t.Fatalf("another cause: %v", context.Cause(held.Context()))
	}
	goesOn()
	s.isFree("job")
	unlock(t, lock(t, client, "job"))
}

func crowd(t *testing.T, s *server, client *dlock.Client) {
	var inside, last atomic.Int64
	var work sync.WaitGroup
	for range 100 {
		work.Add(1)
		go func() {
			defer work.Done()
			l, err := client.Lock(context.Background(), "job")
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			if before := last.Swap(l.Token()); before >= l.Token() {
				t.Errorf("token %d after %d", l.Token(), before)
			}
			inside.Add(-1)
			if err := unlocks(l); err != nil {
				t.Error(err)
			}
		}()
	}
	work.Wait()
	s.isFree("job")
}

func replies(t *testing.T, s *server, client *dlock.Client) {
	ctx := context.Background()
	permit, err := client.Semaphore("pool", 3).Acquire(ctx, dlock.WithSlot())
	if err != nil || permit.Slot() != 0 {
		t.Fatalf("slot %v: %v", permit, err)
	}
	unlock(t, permit)
	several, err := client.LockAll(ctx, []string{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, several)
	s.ask("SET text 1")
	defer s.ask("DEL text")
	var answer dlock.ServerError
	if _, err := client.TryLock(ctx, "text"); !errors.As(err, &answer) || answer.Code() != "WRONGTYPE" {
		t.Fatalf("the error is %v", err)
	}
	for _, err := range client.Watch(ctx, "one") {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("the error is %v", err)
		}
	}
}

// cut closes all connections of the other client while one lock is held and a wait is queued.
func cut(t *testing.T, s *server, client *dlock.Client) {
	held := lock(t, client, "job")
	granted := make(chan *dlock.Lock)
	go func() {
		l, err := client.Lock(context.Background(), "job")
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	s.waiters(1)
	s.ask("CLIENT KILL TYPE normal SKIPME yes")
	s.waiters(1)
	time.Sleep(3 * session / 2)
	if held.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(held.Context()))
	}
	unlock(t, held)
	next := <-granted
	if next == nil {
		t.FailNow()
	}
	unlock(t, next)
}
