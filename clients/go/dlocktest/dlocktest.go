// Package dlocktest starts a lock server for a test, without Redis: the command `dlock serve`.
//
//	server := dlocktest.Start(t)
//	client, err := dlock.New(server.URL())
//	...
//	server.Advance(31 * time.Second) // a lease of 30 s ends without waiting
//
// The command is DLOCK_COMMAND, or dlock on the path. Without it, the test is skipped.
package dlocktest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A Server is a server in memory on a free port. It ends with the test.
type Server struct {
	t    testing.TB
	port string
}

// Start starts a server, with more options of `dlock serve` if need be.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	command := os.Getenv("DLOCK_COMMAND")
	if command == "" {
		command = "dlock"
	}
	program, err := exec.LookPath(command)
	if err != nil {
		t.Skipf("there is no command dlock: install it, or set DLOCK_COMMAND: %v", err)
	}
	process := exec.Command(program, append([]string{"serve", "--port", "0", "--print-port", "--test-clock"}, options...)...)
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("dlock serve does not start: %v", err)
	}
	return &Server{t, strings.TrimSpace(line)}
}

// Address returns where clients connect: host and port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL returns the address as a URL.
func (s *Server) URL() string { return "redis://" + s.Address() }

// Advance moves the server's clock forward. Leases that end by then have ended, and waiters have got the locks.
func (s *Server) Advance(time time.Duration) {
	s.t.Helper()
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "DLOCK.CLOCK ADVANCE %d\r\n", time.Milliseconds())
	reply, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil || !strings.HasPrefix(reply, ":") {
		s.t.Fatalf("the clock does not move: %s %v", reply, err)
	}
}
