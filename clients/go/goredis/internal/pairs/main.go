// Command pairs acquires and releases a lock again and again, for `make bench-packages`. Its arguments are PORT KIND
// PAIRS. It prints the microseconds that the processor worked, and those that have passed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/goredis"
	"github.com/redis/go-redis/v9"
)

var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

const lease = 30 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) != 3 {
		return fmt.Errorf("PORT KIND PAIRS")
	}
	pairs, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	pair, err := pairOf("127.0.0.1:"+words[0], words[1])
	if err != nil {
		return err
	}
	// The first pairs are not measured: they connect and fill caches.
	for number := range pairs / 10 {
		if err := pair(number); err != nil {
			return err
		}
	}
	began, before := time.Now(), cpu()
	for number := range pairs {
		if err := pair(number); err != nil {
			return err
		}
	}
	fmt.Println((cpu() - before).Microseconds(), time.Since(began).Microseconds())
	return nil
}

// pairOf returns a function that acquires and releases. The kind `plain` is SET NX and a script that deletes the key;
// `lease` is a lock that is not renewed, and `kept` one that is, both over go-redis; `own-lease` and `own-kept` are the
// same over the connections of the package.
func pairOf(address, kind string) (func(number int) error, error) {
	ctx := context.Background()
	options := map[string][]dlock.Option{
		"lease": {dlock.WithLease(lease), dlock.WithoutRenewal()}, "own-lease": {dlock.WithLease(lease), dlock.WithoutRenewal()},
		"kept": {dlock.WithLease(lease)}, "own-kept": {dlock.WithLease(lease)},
	}[kind]
	rdb := redis.NewClient(&redis.Options{Addr: address})
	var client *dlock.Client
	var err error
	switch kind {
	case "plain":
		return func(number int) error {
			value := fmt.Sprintf("%032x", number)
			taken, err := rdb.SetNX(ctx, "job", value, lease).Result()
			if err != nil || !taken {
				return fmt.Errorf("the lock is not free: %v", err)
			}
			return release.Run(ctx, rdb, []string{"job"}, value).Err()
		}, nil
	case "lease", "kept":
		client, err = dlock.Over(goredis.Connections(rdb))
	case "own-lease", "own-kept":
		client, err = dlock.New(address)
	default:
		return nil, fmt.Errorf("no such kind: %s", kind)
	}
	return func(int) error {
		lock, err := client.Lock(ctx, "job", options...)
		if err != nil {
			return err
		}
		return lock.Unlock(ctx)
	}, err
}

func cpu() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
