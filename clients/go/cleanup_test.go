package dlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

var errWork = errors.New("the work failed")

// A release that fails must not hide why the work ended.
func TestAPanicGoesOnThroughADeferredUnlock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	for name, before := range map[string]func(string){
		"held": func(string) {}, "lost": func(name string) { s.call("DEL", name) },
	} {
		locker := client.Locker(context.Background(), name)
		reason := func() (reason any) {
			defer func() { reason = recover() }()
			locker.Lock()
			defer locker.Unlock()
			before(name)
			panic(errWork)
		}()
		if reason != errWork {
			t.Errorf("%s: the reason is %v", name, reason)
		}
		s.isFree(name)
	}
	if reason := func() (reason any) {
		defer func() { reason = recover() }()
		client.Locker(context.Background(), "never").Unlock()
		return nil
	}(); reason == nil {
		t.Error("no panic")
	}
}

func TestAnElectionThatIsEndedTellsWhatElseWentWrong(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	for name, result := range map[string]func(context.Context) error{
		"nothing":   func(context.Context) error { return nil },
		"the end":   func(ctx context.Context) error { return context.Cause(ctx) },
		"its error": func(ctx context.Context) error { return ctx.Err() },
		"the work":  func(context.Context) error { return errWork },
	} {
		reason := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(context.Background())
		err := client.Elect(ctx, name, func(term context.Context, _ *dlock.Lock) error {
			time.AfterFunc(time.Millisecond, func() { cancel(reason) })
			<-term.Done()
			return result(term)
		})
		if !errors.Is(err, reason) || errors.Is(err, errWork) != (name == "the work") {
			t.Errorf("%s: %v", name, err)
		}
		s.isFree(name)
	}
}
