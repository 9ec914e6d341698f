package dlock_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// writeToken writes a token to a resource that counts the writes with a token lower than one before.
const writeToken = `if tonumber(ARGV[1]) < tonumber(redis.call("GET", "highest") or 0) then return redis.call("INCR", "overlaps") end
redis.call("SET", "highest", ARGV[1]) return 0`

// takeTurns has goroutines take turns at one lock, and each write its token twice, until ctx ends.
func takeTurns(ctx context.Context, client *dlock.Client, s *server, number int, fails func(error)) {
	var work sync.WaitGroup
	for range number {
		work.Add(1)
		go func() {
			defer work.Done()
			connection, err := net.Dial("tcp", s.address())
			if err != nil {
				fails(err)
				return
			}
			defer connection.Close()
			from := bufio.NewReader(connection)
			for ctx.Err() == nil {
				lock, err := client.Lock(context.Background(), "job")
				if err != nil {
					fails(err)
					return
				}
				for range 2 {
					token := strconv.FormatInt(lock.Token(), 10)
					send(connection, "EVAL", writeToken, "2", "highest", "overlaps", token)
					if _, err := readText(from); err != nil {
						fails(err)
					}
				}
				if err := unlock(lock); err != nil {
					fails(err)
				}
			}
		}()
	}
	work.Wait()
}

// takeTurnsForever runs in a process that the test kills. Its argument is the port of the server and the number of
// goroutines, such as "6379 50".
func takeTurnsForever(at string) {
	s := &server{}
	var number int
	fmt.Sscan(at, &s.port, &number)
	// With a shorter timeout, a machine that stalls ends the session between a grant and its writes.
	client, err := dlock.New(s.address(), dlock.WithSession(3*time.Second))
	fmt.Println("begins", err)
	takeTurns(context.Background(), client, s, number, func(error) {})
}

func TestProgramsThatAreKilledLeaveNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	s := startServer(t)
	way := startProxy(t, s.address())
	client := newClient(t, way.address())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		takeTurns(ctx, client, s, 50, func(err error) { t.Error(err) })
	}()
	for range 4 {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), fmt.Sprintf("DLOCK_GO_TAKES_TURNS=%d %d", s.port, crowd(t)/10))
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the program waits, or has the lock", func() bool { return s.info("dlock", "dlock_named_sessions") == "2" })
		before := s.info("dlock", "dlock_grants")
		eventually(t, "the lock is handed over", func() bool { return s.info("dlock", "dlock_grants") != before })
		program.Process.Kill()
		program.Wait()
		eventually(t, "its session has ended", func() bool { return s.info("dlock", "dlock_named_sessions") == "1" })
		before = s.info("dlock", "dlock_grants")
		eventually(t, "the lock is handed over again", func() bool { return s.info("dlock", "dlock_grants") != before })
	}
	cancel()
	<-ended
	if overlaps := s.call("EXISTS", "overlaps"); overlaps != ":0" {
		t.Fatalf("%s overlaps", s.call("GET", "overlaps"))
	}
	s.call("DEL", "highest")
	client.Close()
	way.close()
	nothingIsLeft(t, s, goroutines)
}
