package gocron

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// testLocker takes the place of the one that the tests of schedulers bring. Their schedulers run each job once, so the lock
// stays longer than a test.
type testLocker struct {
	once      sync.Once
	name      string
	notLocked chan struct{}
}

var numbers atomic.Int64

func (t *testLocker) Lock(ctx context.Context, _ string) (Lock, error) {
	t.once.Do(func() { t.name = fmt.Sprint("job:", numbers.Add(1)) })
	client, err := dlock.New(os.Getenv("DLOCK_TEST_HOST") + ":" + os.Getenv("DLOCK_TEST_PORT"))
	if err != nil {
		return nil, err
	}
	lock, err := client.TryLock(ctx, t.name, dlock.WithAtLeast(30*time.Second))
	if err == nil {
		return &closing{lock, client}, nil
	}
	client.Close()
	if errors.Is(err, dlock.ErrNotGranted) {
		t.notLocked <- struct{}{}
	}
	return nil, err
}

// closing ends the client with its lock: the tests look for goroutines that stay.
type closing struct {
	*dlock.Lock
	client *dlock.Client
}

func (c *closing) Unlock(ctx context.Context) error {
	defer c.client.Close()
	return c.Lock.Unlock(ctx)
}
