package dlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// The interfaces of github.com/go-co-op/gocron/v2. A program imports them.
type (
	gocronLock interface {
		Unlock(ctx context.Context) error
	}
	gocronLocker interface {
		Lock(ctx context.Context, key string) (gocronLock, error)
	}
)

// cronLocker lets one program at a time run a job, and the others skip it: it is a gocron.Locker.
type cronLocker struct {
	client  *dlock.Client
	options []dlock.Option
}

func (l cronLocker) Lock(ctx context.Context, key string) (gocronLock, error) {
	lock, err := l.client.TryLock(ctx, key, l.options...)
	if err != nil {
		return nil, err // not lock: an interface with a nil *dlock.Lock in it is not nil
	}
	return lock, nil
}

func TestAJobOfGocronRunsOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t, startServer(t).address(), dlock.WithSession(time.Second))
	var locker gocronLocker = cronLocker{client, []dlock.Option{dlock.WithAtLeast(time.Minute)}}
	ctx := context.Background()
	job, err := locker.Lock(ctx, "report")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := locker.Lock(ctx, "report"); !errors.Is(err, dlock.ErrNotGranted) || second != nil {
		t.Fatalf("two run it: %v", err)
	}
	if err := job.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	// The clock of this program is late.
	if second, err := locker.Lock(ctx, "report"); !errors.Is(err, dlock.ErrNotGranted) || second != nil {
		t.Fatalf("a short job runs twice: %v", err)
	}
}
