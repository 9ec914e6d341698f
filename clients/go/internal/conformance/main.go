// Command conformance is the adapter of the conformance suite: see tests/conformance/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	dlock "dlock.example/dlock/clients/go"
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

var errCanceled = errors.New("canceled by the scenario")

func main() {
	fmt.Println(`{"features": ["cancel", "outage", "named", "slots", "sentinel", "cluster"]}`)
	a := &adapter{entries: map[string]*entry{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		// In the order of the requests: a cancellation finds what it cancels.
		task := a.task(r)
		go func() {
			done := answer{Result: "error"}
			if err := task(&done); err != nil {
				done.Result, done.Message = result(err, r.Do), err.Error()
			}
			done.ID = r.ID
			a.print(done)
		}()
	}
}

func (a *adapter) print(done answer) {
	text, err := json.Marshal(done)
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Println(string(text))
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
			return lock.Extend(context.Background(), millis(r.Lease))
		case "lost":
			<-lock.Context().Done()
			return context.Cause(lock.Context())
		}
		return errors.New("there is no such task")
	}
}

func (a *adapter) acquire(r request) func(*answer) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &entry{cancel: func() { cancel(errCanceled) }}
	a.entries[r.Lock] = e
	return func(done *answer) error {
		client, err := a.client(r)
		if err != nil {
			return err
		}
		options := []dlock.Option{dlock.WithLease(millis(r.Lease))}
		if !r.Keep && !r.Session && !r.Named {
			options = append(options, dlock.WithoutRenewal())
		}
		if r.Replicas > 0 {
			options = append(options, dlock.WithReplicas(r.Replicas, millis(r.ReplicasTimeout)))
		}
		if r.Outage != nil {
			options = append(options, dlock.WithOutage(millis(*r.Outage)))
		}
		if r.Wait != nil {
			options = append(options, dlock.WithWait(millis(*r.Wait)))
		}
		acquire := client.Lock
		switch r.Mode {
		case "read":
			acquire = client.RLock
		case "write":
			acquire = client.WLock
		}
		if r.Slots != nil {
			acquire = slots(client, *r.Slots)
		}
		lock, err := acquire(ctx, r.Name, options...)
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
		settings = append(settings, dlock.WithSession(min(10*time.Second, max(900*time.Millisecond, millis(r.Lease)/2))))
	}
	client, err := connected(r, settings)
	if r.Named {
		a.named = client
	}
	return client, err
}

// connected returns a client that finds the server as the harness says.
func connected(r request, settings []dlock.ClientOption) (*dlock.Client, error) {
	at := fmt.Sprintf("127.0.0.1:%d", r.Port)
	switch r.By {
	case "sentinel":
		return dlock.NewSentinel("locks", []string{at}, settings...)
	case "cluster":
		return dlock.NewCluster([]string{at}, settings...)
	}
	return dlock.New(at, settings...)
}

// slots returns what acquires a permit with a number.
func slots(client *dlock.Client, limit int) func(context.Context, string, ...dlock.Option) (*dlock.Lock, error) {
	return func(ctx context.Context, name string, options ...dlock.Option) (*dlock.Lock, error) {
		return client.Semaphore(name, limit).Acquire(ctx, append(options, dlock.WithSlot())...)
	}
}

func result(err error, task string) string {
	switch {
	case errors.Is(err, errCanceled):
		return "canceled"
	case errors.Is(err, dlock.ErrNotGranted):
		return "refused"
	case errors.Is(err, dlock.ErrTooFewReplicas):
		return "too-few-replicas"
	case errors.Is(err, dlock.ErrLost):
		return "lost"
	case errors.Is(err, dlock.ErrNoModule):
		return "no-module"
	case task != "acquire":
		return "failed"
	case errors.Is(err, dlock.ErrUnreachable):
		return "unreachable"
	}
	return "error"
}

func millis(number int) time.Duration { return time.Duration(number) * time.Millisecond }
