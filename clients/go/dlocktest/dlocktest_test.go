package dlocktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/dlocktest"
)

func TestALeaseEndsWithoutWaiting(t *testing.T) {
	server := dlocktest.Start(t)
	open := func() *dlock.Client {
		client, err := dlock.New(server.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	first, second := open(), open()
	lock, err := first.TryLock(context.Background(), "job", dlock.WithLease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.TryLock(context.Background(), "job"); !errors.Is(err, dlock.ErrNotGranted) {
		t.Fatalf("not refused: %v", err)
	}
	server.Advance(61 * time.Second)
	next, err := second.TryLock(context.Background(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() <= lock.Token() {
		t.Fatalf("%d after %d", next.Token(), lock.Token())
	}
}
