// Package harness is the shared part of those programs of the Go client that a harness in Python drives: each line of
// the standard input is a request, as JSON, and each line of the standard output an answer.
package harness

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

// ErrCanceled is why an acquisition ends that the harness cancels.
var ErrCanceled = errors.New("canceled by the harness")

// Serve tells what the program can do, and answers requests until there are no more. begin is called in their order, so
// that a cancellation finds what it cancels. The function that begin returns runs beside others, and returns the answer.
func Serve[R any](features []string, begin func(R) func() any) {
	var mu sync.Mutex
	print := func(value any) {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(string(text))
	}
	print(map[string][]string{"features": features})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var request R
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			panic(err)
		}
		task := begin(request)
		go func() { print(task()) }()
	}
}

// Connected returns a client that finds the server as the harness says.
func Connected(by string, ports []int, settings []dlock.ClientOption) (*dlock.Client, error) {
	var addresses []string
	for _, port := range ports {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	switch by {
	case "sentinel":
		return dlock.NewSentinel("locks", addresses, settings...)
	case "cluster":
		return dlock.NewCluster(addresses, settings...)
	}
	return dlock.New(addresses[0], settings...)
}

// Take acquires a lock, or a permit.
type Take = func(ctx context.Context, name string, options ...dlock.Option) (*dlock.Lock, error)

// Taker returns what acquires a lock in this mode, or a permit with a number if there are slots.
func Taker(c *dlock.Client, mode string, slots *int) Take {
	if slots != nil {
		return func(ctx context.Context, name string, options ...dlock.Option) (*dlock.Lock, error) {
			return c.Semaphore(name, *slots).Acquire(ctx, append(options, dlock.WithSlot())...)
		}
	}
	switch mode {
	case "read":
		return c.RLock
	case "write":
		return c.WLock
	}
	return c.Lock
}

// Result returns the harness's word for the failure of a task.
func Result(err error, task string) string {
	switch {
	case errors.Is(err, ErrCanceled):
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

// Millis returns a number of milliseconds of a request.
func Millis(number int) time.Duration { return time.Duration(number) * time.Millisecond }
