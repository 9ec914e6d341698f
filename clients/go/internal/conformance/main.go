// Command conformance is the adapter of the conformance suite: see tests/conformance/README.md.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/harness"
)

type request struct {
	ID              int    `json:"id"`
	Do              string `json:"do"`
	Lock            string `json:"lock"`
	Port            int    `json:"port"`
	By              string `json:"by"`
	Name            string `json:"name"`
	Lease           int    `json:"lease"`
	Wait            *int   `json:"wait"`
	Mode            string `json:"mode"`
	Session         bool   `json:"session"`
	Named           bool   `json:"named"`
	Keep            bool   `json:"keep"`
	Replicas        int    `json:"replicas"`
	ReplicasTimeout int    `json:"replicas_timeout"`
	Outage          *int   `json:"outage"`
	Slots           *int   `json:"slots"`
}

type answer struct {
	ID      int    `json:"id"`
	Result  string `json:"result"`
	Message string `json:"message,omitempty"`
	Token   int64  `json:"token,omitempty"`
	Slot    *int   `json:"slot,omitempty"`
}

// entry is a lock of a scenario.
type entry struct {
	cancel context.CancelFunc
	lock   *dlock.Lock
}

type adapter struct {
	mu      sync.Mutex
	entries map[string]*entry
	// The client of the locks that share a session.
	named *dlock.Client
}

func main() {
	a := &adapter{entries: map[string]*entry{}}
	features := []string{"cancel", "outage", "named", "slots", "sentinel", "cluster"}
	harness.Serve(features, func(r request) func() any {
		task := a.task(r)
		return func() any {
			done := answer{ID: r.ID, Result: "error"}
			if err := task(&done); err != nil {
				done.Result, done.Message = harness.Result(err, r.Do), err.Error()
			}
			return done
		}
	})
}

func (a *adapter) task(r request) func(*answer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Do == "acquire" {
		return a.acquire(r)
	}
	e := a.entries[r.Lock]
	return func(done *answer) error {
		if r.Do == "cancel" {
			e.cancel()
			done.Result = "ok"
			return nil
		}
		a.mu.Lock()
		lock := e.lock
		a.mu.Unlock()
		if lock == nil {
			return errors.New("there is no lock")
		}
		switch r.Do {
		case "release":
			done.Result = "released"
			return lock.Unlock(context.Background())
		case "extend":
			done.Result = "extended"
			return lock.Extend(context.Background(), harness.Millis(r.Lease))
		case "lost":
			<-lock.Context().Done()
			return context.Cause(lock.Context())
		}
		return errors.New("there is no such task")
	}
}

func (a *adapter) acquire(r request) func(*answer) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &entry{cancel: func() { cancel(harness.ErrCanceled) }}
	a.entries[r.Lock] = e
	return func(done *answer) error {
		client, err := a.client(r)
		if err != nil {
			return err
		}
		options := []dlock.Option{dlock.WithLease(harness.Millis(r.Lease))}
		if !r.Keep && !r.Session && !r.Named {
			options = append(options, dlock.WithoutRenewal())
		}
		if r.Replicas > 0 {
			options = append(options, dlock.WithReplicas(r.Replicas, harness.Millis(r.ReplicasTimeout)))
		}
		if r.Outage != nil {
			options = append(options, dlock.WithOutage(harness.Millis(*r.Outage)))
		}
		if r.Wait != nil {
			options = append(options, dlock.WithWait(harness.Millis(*r.Wait)))
		}
		lock, err := harness.Taker(client, r.Mode, r.Slots)(ctx, r.Name, options...)
		if err != nil {
			return err
		}
		if r.Slots != nil {
			slot := lock.Slot()
			done.Slot = &slot
		}
		a.mu.Lock()
		e.lock = lock
		a.mu.Unlock()
		done.Result, done.Token = "granted", lock.Token()
		return nil
	}
}

// client returns a new client, or the one that all locks of the named session have.
func (a *adapter) client(r request) (*dlock.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Named && a.named != nil {
		return a.named, nil
	}
	var settings []dlock.ClientOption
	if r.Keep && !r.Session {
		settings = append(settings, dlock.WithoutSession())
	}
	if r.Session {
		// A quorum wants a lease of twice the session's time.
		settings = append(settings, dlock.WithSession(min(10*time.Second, max(900*time.Millisecond, harness.Millis(r.Lease)/2))))
	}
	client, err := harness.Connected(r.By, []int{r.Port}, settings)
	if r.Named {
		a.named = client
	}
	return client, err
}
