package cron_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	adapter "dlock.example/dlock/clients/go/cron"
	"dlock.example/dlock/clients/go/internal/lending"
	"github.com/robfig/cron/v3"
)

func newClient(t *testing.T, address string) *dlock.Client {
	client, err := dlock.New(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Three programs have the same job. Each run of it happens in one of them.
func TestAJobRunsInOneProgram(t *testing.T) {
	address := lending.Server(t)
	const every = time.Second
	var runs, inside atomic.Int32
	began := time.Now()
	for range 3 {
		client := newClient(t, address)
		scheduler := cron.New()
		locked := cron.NewChain(adapter.Locked(client, "report", cron.DiscardLogger, dlock.WithAtLeast(7*every/10)))
		_, err := scheduler.AddJob("@every 1s", locked.Then(cron.FuncJob(func() {
			if inside.Add(1) > 1 {
				t.Error("it runs in two programs")
			}
			runs.Add(1)
			time.Sleep(50 * time.Millisecond)
			inside.Add(-1)
		})))
		if err != nil {
			t.Fatal(err)
		}
		scheduler.Start()
		t.Cleanup(func() { <-scheduler.Stop().Done() })
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

// words remembers what was logged.
type words struct {
	mu   sync.Mutex
	said []string
}

func (w *words) add(said ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, said...)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "; ")
}

func (w *words) Info(message string, _ ...interface{}) { w.add(message) }

func (w *words) Error(err error, message string, _ ...interface{}) {
	for _, each := range []error{dlock.ErrLost, dlock.ErrUnreachable} {
		if errors.Is(err, each) {
			w.add(message, each.Error())
		}
	}
}

func TestItIsLoggedWhyAJobDoesNotRunOrHasLostItsLock(t *testing.T) {
	address := lending.Server(t)
	client := newClient(t, address)
	var said words
	runs := 0
	run := func(client *dlock.Client, job func(), options ...dlock.Option) {
		adapter.Locked(client, "report", &said, options...)(cron.FuncJob(func() { runs++; job() })).Run()
	}
	run(client, func() { run(client, func() {}) })
	run(newClient(t, "127.0.0.1:1"), func() {})
	lost := fmt.Sprintf("skip; skip; %v; lost; %v", dlock.ErrUnreachable, dlock.ErrLost)
	run(client, func() {
		for began := time.Now(); said.String() != lost && time.Since(began) < lending.Patience; {
			time.Sleep(10 * time.Millisecond)
		}
	}, dlock.WithMaxHold(300*time.Millisecond), dlock.WithLease(300*time.Millisecond))
	if said.String() != lost || runs != 2 {
		t.Fatalf("%v, %d runs", &said, runs)
	}
}
