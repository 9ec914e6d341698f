package dlock_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// A command that gets no connection from the pool for a while waits on, and opens none outside of the pool.
func TestACrowdThatIsHeldUpOpensNoMoreConnections(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithPool(2))
	release(t, acquire(t, client, "first")) // opens the session
	s.call("CLIENT", "PAUSE", "2500", "WRITE")
	var work sync.WaitGroup
	for i := range 200 {
		work.Add(1)
		go func() {
			defer work.Done()
			lock, err := client.Lock(context.Background(), fmt.Sprintf("job:%d", i))
			if err == nil {
				err = unlock(lock)
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	most := 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		number, _ := strconv.Atoi(s.info("clients", "connected_clients"))
		most = max(most, number)
	}
	work.Wait()
	if most > 20 {
		t.Fatalf("%d connections", most)
	}
}
