package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

func Example() {
	client, err := dlock.New(address) // "redis://127.0.0.1:6379"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	lock, err := client.Lock(ctx, "job:1")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	fmt.Println("locked:", lock.Name())
	// Output: locked: job:1
}

func ExampleClient_Lock_deadline() {
	client, err := dlock.New(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	held, err := client.Lock(context.Background(), "job:2")
	if err != nil {
		log.Fatal(err)
	}
	defer held.Unlock(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = client.Lock(ctx, "job:2")
	switch {
	case errors.Is(err, dlock.ErrNotGranted):
		fmt.Println("another owner has it")
	case errors.Is(err, dlock.ErrUnreachable):
		fmt.Println("no server")
	}
	// Prints "no server" if the machine is busy and the answer comes late. TestADeadlineEndsTheWaitAndLeavesTheQueue plays it.
}

func ExampleClient_LockAll() {
	client, err := dlock.New(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	both, err := client.LockAll(ctx, []string{"{order:7}:stock", "{order:7}:payment"})
	if err != nil {
		log.Fatal(err)
	}
	defer both.Unlock(ctx)
	fmt.Println("locked:", both.Name())
	// Output: locked: {order:7}:stock {order:7}:payment
}

func ExampleClient_Semaphore() {
	client, err := dlock.New(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	devices := client.Semaphore("devices", 4)
	device, err := devices.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Unlock(ctx)
	fmt.Println("one of four:", device.Name())
	// Output: one of four: devices
}

func ExampleWithSlot() {
	client, err := dlock.New(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	workers := client.Semaphore("workers", 100)
	worker, err := workers.Acquire(ctx, dlock.WithSlot())
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Unlock(ctx)
	fmt.Println("the id of this worker is", worker.Slot())
	// Output: the id of this worker is 0
}

func ExampleWithBeat() {
	client, err := dlock.New(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	lock, err := client.Lock(ctx, "job:3", dlock.WithBeat(time.Minute)) // each step takes less than that
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	for step := range 3 {
		if err := lock.Beat(); err != nil {
			log.Fatal(err) // the lock is lost
		}
		fmt.Println("step", step)
	}
	// Output:
	// step 0
	// step 1
	// step 2
}
