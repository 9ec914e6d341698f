package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

func TestAClientShowsNoPassword(t *testing.T) {
	t.Parallel()
	client, err := dlock.New("redis://user:confidential@127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(verb, client); text != "dlock.Client" {
			t.Errorf("%s: %s", verb, text)
		}
	}
}

// After a password is replaced, each new connection logs in with the new one, also the connection of a wait.
func TestEachConnectionHasTheLoginOfNow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var password atomic.Pointer[string]
	rotate := func(to string) {
		s.call("ACL", "SETUSER", "app", "on", "resetpass", ">"+to, "~*", "+@all")
		password.Store(&to)
	}
	rotate("one")
	var failing atomic.Bool
	client := newClient(t, s.address(), dlock.WithLogin(func(context.Context) (string, string, error) {
		if failing.Load() {
			return "", "", errWork
		}
		return "app", *password.Load(), nil
	}))
	held := acquire(t, client, "job")
	rotate("two")
	granted := make(chan *dlock.Lock, 1)
	go func() {
		lock, err := client.Lock(context.Background(), "job", dlock.WithWait(patience))
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	s.waiters(1)
	release(t, held)
	if lock := <-granted; lock != nil {
		release(t, lock)
	}
	failing.Store(true)
	other := newClient(t, s.address(), dlock.WithLogin(func(context.Context) (string, string, error) { return "", "", errWork }))
	if _, err := other.TryLock(context.Background(), "job"); !errors.Is(err, errWork) || !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("the error is %v", err)
	}
	if _, err := dlock.New(s.address(), dlock.WithLogin(nil)); err == nil {
		t.Error("no function is accepted")
	}
}

// Functions that the program gives to the client may take any time. The limits hold nevertheless.
func TestLimitsHoldWhateverTheFunctionsOfTheProgramDo(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, option := range map[string]dlock.ClientOption{
		"dialer": dlock.WithDialer(func(context.Context, string, string) (net.Conn, error) {
			<-hang
			return nil, errWork
		}),
		"login": dlock.WithLogin(func(context.Context) (string, string, error) {
			<-hang
			return "", "", errWork
		}),
	} {
		client := newClient(t, s.address(), option)
		for what, wait := range map[string]time.Duration{"try": 0, "wait": 300 * time.Millisecond} {
			watch := startWatch()
			ended := make(chan error, 1)
			go func() {
				_, err := client.Lock(context.Background(), "job", dlock.WithWait(wait))
				ended <- err
			}()
			select {
			case err := <-ended:
				limit := max(wait, time.Duration(1-min(1, wait))*time.Second) + 250*time.Millisecond
				watch.within(t, limit, name+", "+what)
				if !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("%s, %s: it does not end", name, what)
			}
		}
	}
}
