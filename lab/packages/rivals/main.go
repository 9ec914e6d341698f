// Command rivals is the worker of `make rivals` for Go: redsync, redislock, and ours. run.py says what it is asked.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	lease = 10 * time.Second
	name  = "rivals"
	gap   = 40 * time.Millisecond
	work  = 5 * time.Millisecond
)

// acquire returns what releases.
type acquire func(context.Context) (release func(context.Context) error, err error)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("MODE PORT KIND [WAITERS]")
	}
	if words[0] == "line" {
		return line(words)
	}
	one, err := of(words[2], "127.0.0.1:"+words[1])
	if err != nil {
		return err
	}
	fmt.Println("asks")
	if _, err := one(context.Background()); err != nil {
		return err
	}
	fmt.Println("has it")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// of returns an acquisition over a client of its own.
func of(kind, address string) (acquire, error) {
	rdb := redis.NewClient(&redis.Options{Addr: address})
	switch kind {
	case "redsync":
		all := redsync.New(pool.NewPool(rdb))
		return func(ctx context.Context) (func(context.Context) error, error) {
			mutex := all.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1_000_000))
			return func(ctx context.Context) error {
				_, err := mutex.UnlockContext(ctx)
				return err
			}, mutex.LockContext(ctx)
		}, nil
	case "redislock":
		locker := redislock.New(rdb)
		return func(ctx context.Context) (func(context.Context) error, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			retry := redislock.LinearBackoff(100 * time.Millisecond)
			lock, err := locker.Obtain(ctx, name, lease, &redislock.Options{RetryStrategy: retry})
			return lock.Release, err
		}, nil
	case "dlock-go":
		client, err := dlock.New(address)
		return func(ctx context.Context) (func(context.Context) error, error) {
			lock, err := client.Lock(ctx, name, dlock.WithLease(lease))
			if err != nil {
				return nil, err
			}
			return lock.Unlock, nil
		}, err
	default:
		return nil, fmt.Errorf("no such kind: %s", kind)
	}
}

type round struct {
	Released int64      `json:"released"`
	Waiters  [][3]int64 `json:"waiters"`
}

func line(words []string) error {
	waiters, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	var all []acquire
	for range waiters + 1 {
		one, err := of(words[2], "127.0.0.1:"+words[1])
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		count, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		rounds := make([]round, count)
		for at := range rounds {
			if rounds[at], err = play(all[0], all[1:]); err != nil {
				return err
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(rounds); err != nil {
			return err
		}
	}
	return nil
}

var began = time.Now()

func now() int64 { return int64(time.Since(began)) }

// play lets one after the other join the queue while the first one holds. Each has its turn then.
func play(first acquire, others []acquire) (round, error) {
	ctx := context.Background()
	release, err := first(ctx)
	if err != nil {
		return round{}, err
	}
	seen, failures := make([][3]int64, len(others)), make([]error, len(others))
	var turns sync.WaitGroup
	for at, one := range others {
		turns.Add(1)
		go func() {
			defer turns.Done()
			failures[at] = waitInTurn(one, &seen[at])
		}()
		time.Sleep(gap)
	}
	released := now()
	if err := release(ctx); err != nil {
		return round{}, err
	}
	turns.Wait()
	for _, err := range failures {
		if err != nil {
			return round{}, err
		}
	}
	return round{released, seen}, nil
}

func waitInTurn(one acquire, seen *[3]int64) error {
	ctx := context.Background()
	seen[0] = now()
	release, err := one(ctx)
	if err != nil {
		return err
	}
	seen[1] = now()
	time.Sleep(work)
	seen[2] = now()
	return release(ctx)
}
