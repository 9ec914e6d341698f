package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/lending"
)

func TestOverConnectionsOfAnotherClient(t *testing.T) {
	lending.Test(t, func(address string) (func(context.Context) (dlock.Conn, error), func()) {
		return dlock.Wired(address), func() {}
	})
}

// starting is a connection that answers as a server that is starting, or as an agent that reaches no server.
type starting struct {
	dlock.Conn
	is *atomic.Bool
}

func (s starting) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	if !s.is.Load() {
		return s.Conn.Do(ctx, commands...)
	}
	replies := make([]any, len(commands))
	for i := range replies {
		replies[i] = dlock.ServerError("LOADING no server answers")
	}
	return replies, nil
}

// LOADING is no sign that a server answers, neither for the questions of the wait nor for the heartbeats of a session.
func TestAWaitEndsWhenItsServerIsOnlyStarting(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	acquire(t, newClient(t, s.address()), "job")
	wired, isStarting := dlock.Wired(s.address()), atomic.Bool{}
	open := func(ctx context.Context) (dlock.Conn, error) {
		c, err := wired(ctx)
		return starting{c, &isStarting}, err
	}
	client, err := dlock.Over(open, dlock.WithSession(2*patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	// The heartbeats begin to fail soon, and go on for as long as the session would live.
	acquire(t, client, "other", dlock.WithLease(time.Second))
	ended := make(chan error, 1)
	go func() {
		_, err := client.Lock(context.Background(), "job", dlock.WithOutage(time.Second))
		ended <- err
	}()
	s.waiters(1)
	isStarting.Store(true)
	select {
	case err := <-ended:
		if !errors.Is(err, dlock.ErrUnreachable) {
			t.Fatalf("the error is %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it still waits")
	}
}

// telling is a connection on which the first command with a name is done, and answered with an error, some time later.
type telling struct {
	dlock.Conn
	told  *atomic.Bool
	of    string
	what  string
	after time.Duration
}

func (t telling) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	replies, err := t.Conn.Do(ctx, commands...)
	if err == nil && commands[0][0] == t.of && t.told.CompareAndSwap(false, true) {
		time.Sleep(t.after)
		replies[0] = dlock.ServerError(t.what)
	}
	return replies, err
}

func TestAnAgentWithoutAMajorityMayHaveReleasedTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for what, isLost := range map[string]bool{
		"LOADING no majority has answered":                false,
		"LOADING Redis is loading the dataset in memory":  true,
		"LOADING Valkey is loading the dataset in memory": true,
	} {
		wired, told := dlock.Wired(s.address()), atomic.Bool{}
		open := func(ctx context.Context) (dlock.Conn, error) {
			c, err := wired(ctx)
			return telling{c, &told, "DLOCK.RELEASE", what, 0}, err
		}
		client, err := dlock.Over(open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		lock := acquire(t, client, "job")
		if err := unlock(lock); errors.Is(err, dlock.ErrLost) != isLost || !isLost && err != nil {
			t.Errorf("%s: the error is %v", what, err)
		}
		if !told.Load() {
			t.Error("the release was not seen")
		}
	}
}

// failing is a connection on which the next exchanges with a command fail: `how` returns their outcome.
type failing struct {
	dlock.Conn
	of   string
	left *atomic.Int64
	how  func(ctx context.Context, replies int) ([]any, error)
}

func (f failing) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	if commands[0][0] == f.of && f.left.Add(-1) >= 0 {
		return f.how(ctx, len(commands))
	}
	return f.Conn.Do(ctx, commands...)
}

// failures are ways in which an exchange fails.
var failures = map[string]func(context.Context, int) ([]any, error){
	"refused": func(_ context.Context, number int) ([]any, error) {
		replies := make([]any, number)
		for i := range replies {
			replies[i] = dlock.ServerError("NOREPLICAS Not enough good replicas to write.")
		}
		return replies, nil
	},
	"lost": func(context.Context, int) ([]any, error) { return nil, errors.New("the connection ended") },
	"silent": func(ctx context.Context, _ int) ([]any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
}

// A heartbeat tells that the server lacks a lock of the session, and the locks cannot be bound again. A lock that the
// server has is bound when the fault is over; no other lock is believed in for longer than the session was certain.
func TestALockThatCannotBeBoundAgainIsNotKeptByHeartbeats(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	for name, how := range failures {
		for end, times := range map[string]int64{"for good": math.MaxInt64, "for a while": 2} {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				s := startServer(t)
				wired, left := dlock.Wired(s.address()), &atomic.Int64{}
				client, err := dlock.Over(func(ctx context.Context) (dlock.Conn, error) {
					c, err := wired(ctx)
					return failing{c, "DLOCK.RENEW", left, how}, err
				}, dlock.WithSession(session))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Close() })
				stays := acquire(t, client, "stays", dlock.WithLease(forLong))
				gone := acquire(t, client, "gone", dlock.WithLease(forLong))
				eventually(t, "both are bound", func() bool { return s.info("dlock", "dlock_sessions") == "2" })
				left.Store(times)
				s.call("DEL", "gone")
				watch := startWatch()
				select {
				case <-gone.Context().Done():
				case <-time.After(patience):
					t.Fatalf("still believed in, for %v", gone.Remaining())
				}
				watch.within(t, session+200*time.Millisecond, "the loss of a lock that was deleted")
				if times > 2 {
					return
				}
				eventually(t, "the other lock is bound", func() bool { return s.info("dlock", "dlock_sessions") == "1" })
				time.Sleep(session)
				if stays.Context().Err() != nil {
					t.Fatalf("lost: %v", context.Cause(stays.Context()))
				}
			})
		}
	}
}

// belated is a connection that ends with the first request for a lock. The server executes the request when `arrives`
// is closed.
type belated struct {
	dlock.Conn
	address string
	told    *atomic.Bool
	arrives chan struct{}
	done    chan struct{}
}

func (b belated) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	if commands[0][0] != "DLOCK.ACQUIRE" || !b.told.CompareAndSwap(false, true) {
		return b.Conn.Do(ctx, commands...)
	}
	go func() {
		defer close(b.done)
		<-b.arrives
		other, err := dlock.Wired(b.address)(context.Background())
		if err == nil {
			defer other.Close()
			other.Do(context.Background(), commands...)
		}
	}()
	return nil, errors.New("the connection ended")
}

// belatedClient returns a client over belated connections, and their channels.
func belatedClient(t *testing.T, s *server, option dlock.ClientOption) (*dlock.Client, chan struct{}, chan struct{}) {
	t.Helper()
	wired := dlock.Wired(s.address())
	told, arrives, done := &atomic.Bool{}, make(chan struct{}), make(chan struct{})
	client, err := dlock.Over(func(ctx context.Context) (dlock.Conn, error) {
		c, err := wired(ctx)
		return belated{c, s.address(), told, arrives, done}, err
	}, option)
	if err != nil {
		t.Fatal(err)
	}
	return client, arrives, done
}

func TestACopyOfARequestThatArrivesAfterTheReleaseLeavesNoHold(t *testing.T) {
	t.Parallel()
	for name, option := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			client, arrives, done := belatedClient(t, s, option)
			t.Cleanup(func() { client.Close() })
			release(t, acquire(t, client, "job", dlock.WithLease(forLong)))
			close(arrives)
			<-done
			s.isFree("job")
		})
	}
}

// The copy names no session, so it takes the lock even after the session that kept the lock has ended.
func TestACopyOfARequestThatArrivesWhileTheClientIsClosedLeavesNoHold(t *testing.T) {
	t.Parallel()
	for name, option := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			client, arrives, _ := belatedClient(t, s, option)
			acquire(t, client, "job", dlock.WithLease(forLong))
			if name == "kept" {
				eventually(t, "the session keeps it", func() bool { return s.info("dlock", "dlock_sessions") == "1" })
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				client.Close()
			}()
			s.isFree("job")
			s.comesTo(func() { close(arrives) })
			<-closed
		})
	}
}

// An agent that has no answer may have passed the request on long ago. The lease counts from then.
func TestAnAgentThatReachesNoServerMayHaveGrantedTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	wired, told := dlock.Wired(s.address()), atomic.Bool{}
	open := func(ctx context.Context) (dlock.Conn, error) {
		c, err := wired(ctx)
		return telling{c, &told, "DLOCK.ACQUIRE", "LOADING no server answers: Redis is loading", 500 * time.Millisecond}, err
	}
	client, err := dlock.Over(open, dlock.WithoutSession())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	lock := acquire(t, client, "job", dlock.WithLease(20*time.Second), dlock.WithoutRenewal())
	var left int64
	fmt.Sscanf(s.call("DLOCK.CHECK", "job", fmt.Sprint(lock.Token())), ":%d", &left)
	if sure := lock.Remaining(); !told.Load() || left == 0 || sure > time.Duration(left)*time.Millisecond {
		t.Fatalf("for certain %v, on the server %d ms", sure, left)
	}
}

func TestOptionsThatBelongToTheOtherClientAreRefused(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]dlock.ClientOption{
		"user": dlock.WithAuth("worker", ""), "database": dlock.WithDatabase(1), "TLS": dlock.WithTLS(nil),
		"Sentinels": dlock.WithSentinelAuth("worker", ""),
	} {
		if client, err := dlock.Over(dlock.Wired(""), option); err == nil {
			client.Close()
			t.Errorf("%s is accepted", name)
		}
	}
	client, err := dlock.Over(dlock.Wired(""), dlock.WithDefaults(dlock.WithLease(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}
