// Command chaos is the program of the Go package in chaos with all clients: see lab/chaos-clients/README.md.
package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/harness"
)

type request struct {
	ID       int    `json:"id"`
	Do       string `json:"do"`
	Worker   string `json:"worker"`
	By       string `json:"by"`
	Ports    []int  `json:"ports"`
	DB       int    `json:"db"`
	Name     string `json:"name"`
	Mode     string `json:"mode"`
	Slots    *int   `json:"slots"`
	Lease    int    `json:"lease"`
	Wait     int    `json:"wait"`
	Keep     bool   `json:"keep"`
	Named    bool   `json:"named"`
	Timeout  int    `json:"timeout"`
	Replicas int    `json:"replicas"`
}

type answer struct {
	ID        int      `json:"id"`
	Result    string   `json:"result"`
	Message   string   `json:"message,omitempty"`
	Token     int64    `json:"token,omitempty"`
	Slot      *int     `json:"slot,omitempty"`
	At        [2]int64 `json:"at"`
	Remaining float64  `json:"remaining"`
	Lost      bool     `json:"lost"`
}

// worker has one acquisition at a time.
type worker struct {
	cancel context.CancelCauseFunc
	lock   *dlock.Lock
}

type program struct {
	mu      sync.Mutex
	clients map[string]*dlock.Client
	workers map[string]*worker
}

func main() {
	p := &program{clients: map[string]*dlock.Client{}, workers: map[string]*worker{}}
	features := []string{"named", "slots", "replicas", "cancel"}
	harness.Serve(features, func(r request) func() any {
		task := p.task(r)
		return func() any {
			done := task()
			done.ID = r.ID
			return done
		}
	})
}

// task returns the function that serves a request. The requests of a worker take effect in their order, because what
// they need is looked up before the next request is read.
func (p *program) task(r request) func() answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.workers[r.Worker]
	if r.Do == "acquire" {
		ctx, cancel := context.WithCancelCause(context.Background())
		w = &worker{cancel: cancel}
		p.workers[r.Worker] = w
		client, err := p.client(r)
		return func() answer {
			if err != nil {
				return failed(err, r.Do)
			}
			return p.acquire(ctx, client, w, r)
		}
	}
	lock := w.lock
	switch r.Do {
	case "cancel":
		w.cancel(harness.ErrCanceled)
		return func() answer { return answer{Result: "ok"} }
	case "release":
		return func() answer { return release(lock) }
	}
	return func() answer { return claim(lock, "held") }
}

func (p *program) acquire(ctx context.Context, client *dlock.Client, w *worker, r request) answer {
	options := []dlock.Option{dlock.WithLease(harness.Millis(r.Lease)), dlock.WithWait(harness.Millis(r.Wait))}
	if !r.Keep && !r.Named {
		options = append(options, dlock.WithoutRenewal())
	}
	if r.Replicas > 0 {
		options = append(options, dlock.WithReplicas(r.Replicas, time.Second))
	}
	lock, err := harness.Taker(client, r.Mode, r.Slots)(ctx, r.Name, options...)
	if err != nil {
		return failed(err, r.Do)
	}
	done := claim(lock, "granted")
	done.Token = lock.Token()
	if r.Slots != nil {
		slot := lock.Slot()
		done.Slot = &slot
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.lock = lock
	return done
}

// client returns the client that all workers share for a database, with or without a session. The caller holds p.mu.
func (p *program) client(r request) (*dlock.Client, error) {
	key := fmt.Sprint(r.DB, r.Named)
	if client := p.clients[key]; client != nil {
		return client, nil
	}
	settings := []dlock.ClientOption{dlock.WithoutSession()}
	if r.Named {
		settings[0] = dlock.WithSession(harness.Millis(r.Timeout))
	}
	if r.DB > 0 {
		settings = append(settings, dlock.WithDatabase(r.DB))
	}
	client, err := harness.Connected(r.By, r.Ports, settings)
	if err == nil {
		p.clients[key] = client
	}
	return client, err
}

func release(lock *dlock.Lock) answer {
	done := claim(lock, "released")
	if err := lock.Unlock(context.Background()); err != nil {
		failure := failed(err, "release")
		done.Result, done.Message = failure.Result, failure.Message
	}
	return done
}

// claim returns what a lock says of itself, and the times before and after it was asked.
func claim(lock *dlock.Lock, result string) answer {
	before := micros()
	remaining := lock.Remaining()
	lost := lock.Context().Err() != nil
	return answer{
		Result: result, At: [2]int64{before, micros()}, Remaining: float64(remaining.Microseconds()) / 1000, Lost: lost,
	}
}

func failed(err error, do string) answer {
	return answer{Result: harness.Result(err, do), Message: err.Error(), At: [2]int64{micros(), micros()}}
}

// micros returns the machine's monotonic clock, which all programs share, and which package time does not show.
func micros() int64 {
	var now syscall.Timespec
	const monotonic = 1
	_, _, failure := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failure != 0 {
		panic(failure)
	}
	return now.Nano() / 1000
}
