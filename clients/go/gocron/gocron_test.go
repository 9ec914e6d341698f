package gocron_test

import (
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	adapter "dlock.example/dlock/clients/go/gocron"
	"dlock.example/dlock/clients/go/internal/lending"
	"github.com/go-co-op/gocron/v2"
)

// Three programs have the same job. Each run of it happens in one of them.
func TestAJobRunsInOneProgram(t *testing.T) {
	address := lending.Server(t)
	const every = time.Second
	var runs, inside atomic.Int32
	began := time.Now()
	for range 3 {
		client, err := dlock.New(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(
			adapter.Locker(client, dlock.WithAtLeast(7*every/10))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { scheduler.Shutdown() })
		_, err = scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(func() {
			if inside.Add(1) > 1 {
				t.Error("it runs in two programs")
			}
			runs.Add(1)
			time.Sleep(50 * time.Millisecond)
			inside.Add(-1)
		}), gocron.WithName("report"))
		if err != nil {
			t.Fatal(err)
		}
		scheduler.Start()
	}
	for runs.Load() < 4 {
		if time.Since(began) > lending.Patience {
			t.Fatalf("%d runs", runs.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if most := int32(time.Since(began)/every) + 1; runs.Load() > most {
		t.Errorf("%d runs in %v", runs.Load(), time.Since(began))
	}
}
