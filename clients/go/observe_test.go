package dlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

func TestAWatchReportsEachChange(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	way := startProxy(t, s.address())
	client, other := newClient(t, way.address()), newClient(t, s.address())
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan *dlock.Holder)
	done := make(chan error)
	go func() {
		for holder, err := range client.Watch(ctx, "job") {
			if err != nil {
				done <- err
				return
			}
			seen <- holder
		}
		done <- nil
	}()
	if holder := <-seen; holder != nil {
		t.Fatalf("held by %v", holder)
	}
	for range 3 {
		lock := acquire(t, other, "job")
		holder := <-seen
		if holder == nil || holder.Token != lock.Token() || holder.Owner != lock.Owner() ||
			time.Since(holder.Since) > time.Minute {
			t.Fatalf("held by %v", holder)
		}
		if now, err := client.Holder(ctx, "job"); err != nil || *now != *holder {
			t.Fatalf("held by %v: %v", now, err)
		}
		way.lead(s.address()) // The watch goes on after its connection has broken.
		release(t, lock)
		if holder := <-seen; holder != nil {
			t.Fatalf("held by %v", holder)
		}
	}
	short := acquire(t, other, "job", dlock.WithLease(2*time.Second), dlock.WithoutRenewal())
	if holder := <-seen; holder == nil || holder.Token != short.Token() {
		t.Fatalf("held by %v", holder)
	}
	if holder := <-seen; holder != nil {
		t.Fatalf("held by %v", holder)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAWatchEndsWithAnAnswerThatIsAnError(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.call("SET", "job", "text")
	client := newClient(t, s.address())
	var answer dlock.ServerError
	for _, err := range client.Watch(context.Background(), "job") {
		if !errors.As(err, &answer) || answer.Code() != "WRONGTYPE" {
			t.Fatalf("the error is %v", err)
		}
	}
	if answer == "" {
		t.Fatal("no error")
	}
}

func TestTheNextLeaderTakesOver(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	terms := make(chan *dlock.Lock, 100)
	ended := make(chan error)
	for range 2 {
		client := newClient(t, s.address(), dlock.WithSession(3*time.Second))
		go func() {
			ended <- client.Elect(ctx, "leader", func(term context.Context, lock *dlock.Lock) error {
				terms <- lock
				<-term.Done()
				return context.Cause(term)
			})
		}()
	}
	first := <-terms
	s.call("DEL", "leader") // The term ends. The other one leads now, or the same again.
	second := <-terms
	if second.Token() <= first.Token() {
		t.Fatalf("token %d after %d", second.Token(), first.Token())
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	s.isFree("leader")
}

func TestALeaderMayGiveUp(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	tired := errors.New("tired")
	client := newClient(t, s.address())
	err := client.Elect(context.Background(), "leader", func(context.Context, *dlock.Lock) error { return tired })
	if err != tired {
		t.Fatal(err)
	}
	s.isFree("leader")
}

func TestAClientMayBeClosedWhileItsWatchIsRead(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, err := range client.Watch(context.Background(), "job") {
			last = err
			client.Close()
		}
		ended <- last
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, dlock.ErrClosed) {
			t.Fatalf("the error is %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Close and the loop wait for each other")
	}
}
