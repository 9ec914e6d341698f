package dlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// waitAndBelieve is the program that the test pauses; `at` is "address kind". The program waits for the lock, prints
// "believes" again and again while it believes to hold the lock, and then prints why it is lost.
func waitAndBelieve(at string) {
	address, kind, _ := strings.Cut(at, " ")
	option := dlock.WithoutSession()
	if kind == "kept" {
		option = dlock.WithSession(1500 * time.Millisecond)
	}
	client, err := dlock.New(address, option)
	if err != nil {
		panic(err)
	}
	fmt.Println("begins")
	lock, err := client.Lock(context.Background(), "job", dlock.WithLease(3*time.Second))
	if err != nil {
		panic(err)
	}
	for lock.Remaining() > 0 {
		fmt.Println("believes")
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("lost", context.Cause(lock.Context()))
	select {}
}

// A program that is paused while it waits is granted the lock, and loses it, before it goes on. A program that is paused
// while it holds the lock loses it, too.
func TestAPausedProgramDoesNotBelieveInALostLock(t *testing.T) {
	t.Parallel()
	for kind := range kinds() {
		for _, when := range []string{"it waits", "it holds"} {
			t.Run(kind+", while "+when, func(t *testing.T) {
				t.Parallel()
				s := startServer(t)
				o := newOther(s)
				o.holds()
				program := exec.Command(os.Args[0])
				program.Env = append(os.Environ(), "DLOCK_GO_WAITS="+s.address()+" "+kind)
				said, err := program.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := program.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					program.Process.Kill()
					program.Wait()
				})
				lines := bufio.NewScanner(said)
				says := func() string {
					if !lines.Scan() {
						t.Fatal("the program has ended")
					}
					return lines.Text()
				}
				says()
				s.waiters(1)
				if when == "it holds" {
					o.releases()
					says()
				}
				program.Process.Signal(syscall.SIGSTOP)
				eventually(t, "the program is paused", func() bool {
					state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", program.Process.Pid))
					return strings.Contains(string(state), ") T ")
				})
				o.releases()
				// The lock is granted to the paused program, which loses it, and then to the test.
				if reply := o.call("DLOCK.ACQUIRE", "job", "next", "PX", "60000", "BLOCK", "20000"); reply[0] != ':' {
					t.Fatalf("not granted: %s", reply)
				}
				began := time.Now()
				program.Process.Signal(syscall.SIGCONT)
				if when == "it holds" {
					// A line that the program printed before the pause is still read.
					for says() == "believes" {
						if took := time.Since(began); took > 200*time.Millisecond {
							t.Fatalf("believed for %v to hold the lock of another owner", took)
						}
					}
					return
				}
				// The program has learned that its grant is gone, and waits again.
				s.waiters(1)
				time.Sleep(500 * time.Millisecond)
				o.call("DLOCK.RELEASE", "job", "next")
				if says() != "believes" || time.Since(began) < 500*time.Millisecond {
					t.Fatalf("after %v: the program does not believe, or believed while another owner held the lock", time.Since(began))
				}
			})
		}
	}
}
