package dlock_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Run these benchmarks on a quiet machine:
//
//	tests/clients/go.sh -run '^$' -bench . -benchtime 200x

// contenders is how many goroutines want the lock.
const contenders = 8

// BenchmarkHandOff times one turn of eight goroutines that want one lock, with dlock and with a lock that polls. It
// also reports how many commands the server executed for a turn, how long the longest wait was, and how many turns were
// out of order, as the goroutines see it: granted to another goroutine than the one that had asked first. Two requests
// that are sent at the same time may reach the server in either order.
func BenchmarkHandOff(b *testing.B) {
	b.Run("dlock", func(b *testing.B) {
		s := startServer(b)
		client := newClient(b, s.address())
		handOff(b, s, func() func() {
			lock := acquire(b, client, "job")
			return func() { release(b, lock) }
		})
	})
	b.Run("polling", func(b *testing.B) {
		s := startServer(b)
		handOff(b, s, func() func() { return poll(b, s) })
	})
}

// BenchmarkFree times a lock that nobody else wants.
func BenchmarkFree(b *testing.B) {
	b.Run("dlock", func(b *testing.B) {
		client := newClient(b, startServer(b).address())
		release(b, acquire(b, client, "job")) // opens the client's session, which takes commands of its own
		b.ResetTimer()
		for range b.N {
			release(b, acquire(b, client, "job"))
		}
	})
}

func handOff(b *testing.B, s *server, lock func() (unlock func())) {
	var mu sync.Mutex
	var waiting []int // the contenders that wait, the one that has waited longest first
	disordered := 0
	var longest time.Duration
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	before := commands(s)
	b.ResetTimer()
	var work sync.WaitGroup
	for me := range contenders {
		work.Add(1)
		go func() {
			defer work.Done()
			for range turns {
				mu.Lock()
				waiting = append(waiting, me)
				mu.Unlock()
				began := time.Now()
				unlock := lock()
				mu.Lock()
				longest = max(longest, time.Since(began))
				at := slices.Index(waiting, me)
				if at > 0 {
					disordered++
				}
				waiting = slices.Delete(waiting, at, at+1)
				mu.Unlock()
				unlock()
			}
		}()
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64(commands(s)-before)/float64(b.N), "commands/op")
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
	b.ReportMetric(100*float64(disordered)/float64(b.N), "%disordered")
}

func commands(s *server) (number int) {
	fmt.Sscan(s.info("stats", "total_commands_processed"), &number)
	return number
}

const compareAndDelete = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`

// poll acquires as the documentation of redsync tells, with its default times: SET NX PX for 8 s, again after 50 to 250
// ms at random, however often, and a release by a script that compares the value.
func poll(b *testing.B, s *server) func() {
	connection, err := net.Dial("tcp", s.address())
	if err != nil {
		b.Error(err)
		return func() {}
	}
	from := bufio.NewReader(connection)
	call := func(words ...string) string {
		send(connection, words...)
		reply, err := readText(from)
		if err != nil {
			b.Error(err)
		}
		return reply
	}
	value := fmt.Sprint(rand.Uint64())
	for call("SET", "job", value, "NX", "PX", "8000") != "+OK" {
		time.Sleep(50*time.Millisecond + rand.N(200*time.Millisecond))
	}
	return func() {
		call("EVAL", compareAndDelete, "1", "job", value)
		connection.Close()
	}
}
