package dlock_test

import (
	"context"
	"errors"
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

// The answer is taken for one neither by what the wait itself asks nor by the heartbeats of its session.
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

// telling is a connection on which the first release is done, and answered with an error.
type telling struct {
	dlock.Conn
	told *atomic.Bool
	what string
}

func (t telling) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	replies, err := t.Conn.Do(ctx, commands...)
	if err == nil && commands[0][0] == "DLOCK.RELEASE" && t.told.CompareAndSwap(false, true) {
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
			return telling{c, &told, what}, err
		}
		client, err := dlock.Over(open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		lock := acquire(t, client, "job")
		if err := lock.Unlock(context.Background()); errors.Is(err, dlock.ErrLost) != isLost || !isLost && err != nil {
			t.Errorf("%s: the error is %v", what, err)
		}
		if !told.Load() {
			t.Error("the release was not seen")
		}
	}
}

func TestOptionsThatAreThoseOfTheOtherClientAreRefused(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]dlock.ClientOption{
		"user": dlock.WithAuth("worker", ""), "database": dlock.WithDatabase(1), "TLS": dlock.WithTLS(nil),
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
