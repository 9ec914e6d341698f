package dlock_test

import (
	"context"
	"testing"

	dlock "dlock.example/dlock/clients/go"
)

func TestHoldersOfASemaphoreHaveDifferentSlots(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	devices := newClient(t, s.address()).Semaphore("devices", 3)
	var locks []*dlock.Lock
	for slot := range 3 {
		lock, err := devices.Acquire(context.Background(), dlock.WithSlot())
		if err != nil {
			t.Fatal(err)
		}
		if lock.Slot() != slot {
			t.Fatalf("slot %d, and not %d", lock.Slot(), slot)
		}
		locks = append(locks, lock)
	}
	next := make(chan *dlock.Lock)
	go func() {
		lock, err := devices.Acquire(context.Background(), dlock.WithSlot())
		if err != nil {
			t.Error(err)
		}
		next <- lock
	}()
	s.waiters(1)
	release(t, locks[1])
	if locks[1] = <-next; locks[1] == nil {
		t.FailNow()
	}
	if locks[1].Slot() != 1 {
		t.Fatalf("slot %d is not free", locks[1].Slot())
	}
	for _, lock := range locks {
		release(t, lock)
	}
	without, err := devices.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if without.Slot() != -1 {
		t.Fatalf("slot %d, and none was asked for", without.Slot())
	}
	release(t, without)
	s.isFree("devices")
}
