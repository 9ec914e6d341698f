package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// A connection of the pool or a place at the gate of a lock may become free at the moment of the cancellation.
func TestAPlaceThatComesWithTheCancellationIsGivenBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithPool(1), dlock.WithWaiters(1))
	for range 60 {
		ctx, cancel := context.WithCancel(context.Background())
		var work sync.WaitGroup
		for i := range 40 {
			work.Add(1)
			go func() {
				defer work.Done()
				for ctx.Err() == nil {
					lock, err := client.Lock(ctx, fmt.Sprintf("job:%d", i%5))
					if err == nil {
						err = unlock(lock)
					}
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			}()
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		cancel()
		work.Wait()
		for i := range 5 {
			lock, err := client.Lock(context.Background(), fmt.Sprintf("job:%d", i), dlock.WithWait(patience))
			if err != nil {
				t.Fatal(err)
			}
			release(t, lock)
		}
	}
	s.waiters(0)
	eventually(t, "no lock is left", func() bool { return s.call("DBSIZE") == ":0" })
}
