package dlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// grants returns how many requests the server has granted.
func (s *server) grants() int {
	s.t.Helper()
	grants, err := strconv.Atoi(s.info("dlock", "dlock_grants"))
	if err != nil {
		s.t.Fatal(err)
	}
	return grants
}

// comesTo lets a late copy of a request reach the server, which grants it. Fails unless the lock becomes free.
func (s *server) comesTo(nobody func()) {
	s.t.Helper()
	before := s.grants()
	nobody()
	eventually(s.t, "the late copy is granted", func() bool { return s.grants() > before })
	s.isFree("job")
}

func TestALateCopyOfARefusedRequestLeavesNoHold(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		o.holds()
		arrives := p.breaksAt("DLOCK.ACQUIRE")
		_, err := client.TryLock(context.Background(), "job", dlock.WithLease(forLong))
		if !errors.Is(err, dlock.ErrNotGranted) {
			t.Fatal(err)
		}
		o.releases()
		s.comesTo(arrives)
	})
}

func TestALateCopyOfAWaitThatIsGivenUpLeavesNoHold(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		o.holds()
		arrives := p.breaksAt("BLOCK")
		s.waits(client)()
		s.waiters(0)
		o.releases()
		time.Sleep(10 * time.Millisecond) // The client has sent its first release.
		s.comesTo(arrives)
	})
}

// A reset says that the connection is broken, not that the server executes nothing more.
func TestALateCopyOfAWaitWhoseConnectionIsResetLeavesNoHold(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		o.holds()
		resets, arrives := p.resetsAt("BLOCK")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := client.Lock(ctx, "job", dlock.WithLease(forLong))
			ended <- err
		}()
		eventually(t, "the wait is kept back", func() bool { return p.keeps.Load() == nil })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		released := s.info("commandstats", "cmdstat_dlock.release")
		resets()
		eventually(t, "the client releases", func() bool { return s.info("commandstats", "cmdstat_dlock.release") != released })
		o.releases()
		s.comesTo(arrives)
	})
}

func TestALateCopyAfterALockThatStaysLeavesNoHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.address())
	client := newClient(t, p.address())
	arrives := p.breaksAt("DLOCK.ACQUIRE")
	const stays = 300 * time.Millisecond
	began := time.Now()
	release(t, acquire(t, client, "job", dlock.WithLease(forLong), dlock.WithAtLeast(stays)))
	s.isFree("job")
	if lasted := time.Since(began); lasted < stays {
		t.Fatalf("the lock has stayed for %v", lasted)
	}
	s.comesTo(arrives)
}

func TestALateCopyThatArrivesWhileTheClientIsClosedLeavesNoHold(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(t *testing.T, client *dlock.Client, o *other){
		"released": func(t *testing.T, client *dlock.Client, o *other) {
			release(t, acquire(t, client, "job", dlock.WithLease(forLong)))
		},
		"held": func(t *testing.T, client *dlock.Client, o *other) {
			acquire(t, client, "job", dlock.WithLease(forLong))
		},
		"refused": func(t *testing.T, client *dlock.Client, o *other) {
			o.holds()
			if _, err := client.TryLock(context.Background(), "job", dlock.WithLease(forLong)); !errors.Is(err, dlock.ErrNotGranted) {
				t.Fatal(err)
			}
			o.releases()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			p := startProxy(t, s.address())
			client := newClient(t, p.address(), dlock.WithoutSession())
			arrives := p.breaksAt("DLOCK.ACQUIRE")
			ends(t, client, newOther(s))
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				client.Close()
			}()
			time.Sleep(200 * time.Millisecond)
			s.isFree("job")
			s.comesTo(arrives)
			<-closed
		})
	}
}

// overwriting is a connection on which the first request gets no answer, and arrives late. Another program overwrites the
// lock that the second one is granted, and the answer takes long.
type overwriting struct {
	belated
	s     *server
	again *atomic.Bool
}

func (o overwriting) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	isFirst := !o.told.Load()
	replies, err := o.belated.Do(ctx, commands...)
	if !isFirst && commands[0][0] == "DLOCK.ACQUIRE" && o.again.CompareAndSwap(false, true) {
		o.s.call("SET", "job", "foreign")
		time.Sleep(lateLease/3 + 100*time.Millisecond)
		time.AfterFunc(500*time.Millisecond, func() { o.s.call("DEL", "job") })
	}
	return replies, err
}

const lateLease = 9 * time.Second

func TestALateCopyOfARequestWhoseGrantWasOverwrittenLeavesNoHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	wired := dlock.Wired(s.address())
	told, again, arrives, done := &atomic.Bool{}, &atomic.Bool{}, make(chan struct{}), make(chan struct{})
	client, err := dlock.Over(func(ctx context.Context) (dlock.Conn, error) {
		c, err := wired(ctx)
		return overwriting{belated{c, s.address(), told, arrives, done}, s, again}, err
	}, dlock.WithoutSession())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	release(t, acquire(t, client, "job", dlock.WithLease(lateLease)))
	s.comesTo(func() { close(arrives) })
	if left := s.info("dlock", "dlock_lapses"); left != "0" {
		t.Fatalf("%s locks have lapsed", left)
	}
}
