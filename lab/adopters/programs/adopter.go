// A program that uses the Go package as its README says (../README.md): go-adopter ROLE NAME
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	dlock "dlock.example/dlock/clients/go"
)

var (
	role, name = os.Args[1], os.Args[2]
	ledger     = os.Getenv("ADOPTER_LEDGER")
	client     *dlock.Client
	writing    sync.Mutex
	numbers    int
	// replicated is an option of each acquisition, if replicas are asked for.
	replicated []dlock.Option

	errAbandoned = errors.New("the lock is lost")
	errDeployed  = errors.New("a new version is deployed")
)

type fields = map[string]any

// tell writes a line for the run.
func tell(event string, number int, at [2]int64, more fields) {
	line := fields{"event": event, "id": number, "at": at}
	for key, value := range more {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func now() [2]int64 { return [2]int64{micros(), micros()} }

// micros returns the time of the machine's one monotonic clock, which package time does not show.
func micros() int64 {
	var now syscall.Timespec
	const monotonic = 1
	if _, _, failure := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0); failure != 0 {
		panic(failure)
	}
	return now.Nano() / 1000
}

// asking tells that the package is about to be asked, and returns the number of the acquisition.
func asking(lock string, lease, wait int, more fields) int {
	writing.Lock()
	numbers++
	number := numbers
	writing.Unlock()
	told := fields{"lock": lock, "lease": lease, "wait": wait}
	for key, value := range more {
		told[key] = value
	}
	tell("asking", number, now(), told)
	return number
}

// holds tells what the lock says of itself, and returns whether it is held.
func holds(event string, number int, lock *dlock.Lock, more fields) bool {
	before := micros()
	remaining, lost := lock.Remaining(), lock.Context().Err() != nil
	at := [2]int64{before, micros()}
	told := fields{"remaining": float64(remaining.Microseconds()) / 1000, "lost": lost}
	for key, value := range more {
		told[key] = value
	}
	tell(event, number, at, told)
	return remaining > 0 && !lost
}

// work works for a while, with a look at the lock every 100 ms, until its context ends.
func work(ctx context.Context, number int, lock *dlock.Lock, least, most time.Duration) error {
	for ends := time.Now().Add(between(least, most)); time.Now().Before(ends); {
		rest(ctx, min(100*time.Millisecond, time.Until(ends)))
		if !holds("still", number, lock, nil) {
			return errAbandoned
		}
	}
	return nil
}

func between(least, most time.Duration) time.Duration {
	return least + time.Duration(rand.Int63n(int64(most-least)))
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ended tells how an acquisition has ended.
func ended(number int, err error, more fields) {
	if err == nil {
		tell("left", number, now(), more)
		return
	}
	kind := fmt.Sprintf("%T", err)
	for _, each := range []struct {
		name string
		err  error
	}{
		{"ErrNotGranted", dlock.ErrNotGranted}, {"ErrLost", dlock.ErrLost}, {"ErrTooFewReplicas", dlock.ErrTooFewReplicas},
		{"ErrUnreachable", dlock.ErrUnreachable}, {"ErrReleased", dlock.ErrReleased}, {"ErrClosed", dlock.ErrClosed},
		{"abandoned", errAbandoned},
	} {
		if errors.Is(err, each.err) {
			kind = each.name
			break
		}
	}
	tell("error", number, now(), fields{"type": kind, "message": err.Error()})
}

// held runs the body with a lock, and joins its error and that of the release.
func held(
	ctx context.Context, number int, lock *dlock.Lock, err error, body func(ctx context.Context) error,
) (result error) {
	if err != nil {
		return err
	}
	defer func() { result = errors.Join(result, lock.Unlock(ctx)) }()
	defer holds("leaving", number, lock, nil)
	told := fields{"token": lock.Token()}
	if lock.Slot() >= 0 {
		told["slot"] = lock.Slot()
	}
	holds("inside", number, lock, told)
	return body(lock.Context())
}

// pay is a web handler: it pays an order, which other programs may be asked to pay at the same time.
func pay(ctx context.Context) {
	rest(ctx, between(50*time.Millisecond, 250*time.Millisecond))
	order := strconv.FormatInt(time.Now().UnixMilli()/500-rand.Int63n(3), 10)
	number := asking("pay:"+order, 3000, 1000, nil)
	request, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	lock, err := client.Lock(request, "pay:"+order, append(replicated, dlock.WithLease(3*time.Second), dlock.WithoutRenewal())...)
	ended(number, held(context.Background(), number, lock, err, func(ctx context.Context) error {
		return charge(number, lock, filepath.Join(ledger, order))
	}), nil)
}

// charge pays once. The file plays a database that refuses tokens lower than one it has seen: ../rules.py leaves such
// rows out.
func charge(number int, lock *dlock.Lock, order string) error {
	rows, err := os.OpenFile(order, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer rows.Close()
	fmt.Fprintf(rows, "begin %d %s\n", lock.Token(), name)
	before, err := os.ReadFile(order)
	if err != nil || strings.Contains(string(before), "paid ") {
		return err
	}
	time.Sleep(between(20*time.Millisecond, 150*time.Millisecond)) // The provider is called.
	if !holds("still", number, lock, nil) {
		return errAbandoned
	}
	_, err = fmt.Fprintf(rows, "paid %d %s\n", lock.Token(), name)
	return err
}

// serve is a worker of a pool: jobs of one customer run one at a time.
func serve(context.Context) {
	customer := fmt.Sprint("customer:", rand.Intn(4))
	number := asking(customer, 2000, 2000, nil)
	ctx := context.Background()
	lock, err := client.Lock(ctx, customer, append(replicated, dlock.WithWait(2*time.Second))...)
	ended(number, held(ctx, number, lock, err, func(ctx context.Context) error {
		steps := time.Duration(1 + rand.Intn(6))
		return work(ctx, number, lock, steps*50*time.Millisecond, steps*400*time.Millisecond)
	}), nil)
}

// stand is a candidate, which leads until its term ends or it resigns.
func stand(ctx context.Context) {
	number := asking("leader", 2000, -1, nil)
	leads := false
	err := client.Elect(ctx, "leader", func(term context.Context, lock *dlock.Lock) error {
		if leads {
			// The term before has ended by itself, and this wait is told only now.
			number = asking("leader", 2000, -1, nil)
		}
		leads = true
		holds("inside", number, lock, fields{"token": lock.Token()})
		err := work(term, number, lock, time.Second, 6*time.Second)
		holds("leaving", number, lock, nil)
		tell("left", number, now(), fields{"lost": err != nil})
		if err != nil && ctx.Err() == nil {
			number, leads = asking("leader", 2000, -1, nil), false
		}
		return nil
	}, replicated...)
	switch {
	case leads:
	case errors.Is(err, errDeployed):
		tell("canceled", number, now(), nil)
	default:
		ended(number, err, nil)
	}
	rest(ctx, 100*time.Millisecond)
}

// compute is a job for one of three GPUs, whose number nobody else has.
func compute(context.Context) {
	number := asking("gpu", 2000, 2000, fields{"limit": 3})
	ctx := context.Background()
	lock, err := client.Semaphore("gpu", 3).Acquire(ctx, append(replicated, dlock.WithSlot(), dlock.WithWait(2*time.Second))...)
	ended(number, held(ctx, number, lock, err, func(ctx context.Context) error {
		return work(ctx, number, lock, 100*time.Millisecond, 1500*time.Millisecond)
	}), nil)
}

// report is a job that each machine's scheduler starts, once a period.
func report(ctx context.Context) {
	const period = 4000
	rest(ctx, time.Duration(period-time.Now().UnixMilli()%period+rand.Int63n(30))*time.Millisecond)
	if ctx.Err() != nil {
		return
	}
	// The event's `lease` is how long the lock stays: nine tenths of the period.
	number := asking("report", 3600, 0, nil)
	lock, err := client.TryLock(context.Background(), "report", append(replicated, dlock.WithAtLeast(3600*time.Millisecond))...)
	if errors.Is(err, dlock.ErrNotGranted) {
		tell("refused", number, now(), nil)
		return
	}
	ended(number, held(context.Background(), number, lock, err, func(ctx context.Context) error {
		return work(ctx, number, lock, 100*time.Millisecond, 500*time.Millisecond)
	}), fields{"kept": true})
}

func connect() (*dlock.Client, error) {
	var addresses []string
	for _, port := range strings.Split(os.Getenv("ADOPTER_PORTS"), ",") {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	defaults := dlock.WithDefaults(dlock.WithLease(2 * time.Second))
	if os.Getenv("ADOPTER_BY") == "sentinel" {
		return dlock.NewSentinel("locks", addresses, defaults, dlock.WithSession(2*time.Second))
	}
	if os.Getenv("ADOPTER_BY") == "cluster" {
		return dlock.NewCluster(addresses, defaults, dlock.WithSession(2*time.Second))
	}
	if os.Getenv("ADOPTER_BY") == "quorum" {
		// An agent refuses a lease of less than twice the session's time.
		return dlock.New(addresses[0], defaults, dlock.WithSession(time.Second))
	}
	return dlock.New(addresses[0], defaults, dlock.WithSession(2*time.Second))
}

func main() {
	var err error
	if client, err = connect(); err != nil {
		panic(err)
	}
	if replicas, _ := strconv.Atoi(os.Getenv("ADOPTER_REPLICAS")); replicas > 0 {
		replicated = []dlock.Option{dlock.WithReplicas(replicas, time.Second)}
	}
	replicated = replicated[:len(replicated):len(replicated)] // so that each append copies
	task := map[string]func(context.Context){
		"web": pay, "pool": serve, "election": stand, "slots": compute, "cron": report,
	}[role]
	workers := map[string]int{"web": 2, "pool": 2}[role]
	ctx, deploy := context.WithCancelCause(context.Background())
	var working sync.WaitGroup
	for range max(1, workers) {
		working.Add(1)
		go func() {
			defer working.Done()
			for ctx.Err() == nil {
				task(ctx)
				rest(ctx, 50*time.Millisecond)
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	deploy(errDeployed)
	working.Wait()
	client.Close()
}
