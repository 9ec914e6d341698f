// Package lending tests a client over the connections of another one: each adapter has the same promises to keep.
package lending

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"dlock.example/dlock/clients/go/internal/ports"
)

// server is a server of its own for a test: DLOCK_SERVER with the module DLOCK_MODULE.
type server struct {
	t       *testing.T
	address string
	process *exec.Cmd
}

// Patience is how long a condition may take on a busy machine.
const Patience = 30 * time.Second

// Server returns the address of a server that is there for a test.
func Server(t *testing.T) string { return startServer(t).address }

func startServer(t *testing.T) *server {
	t.Helper()
	port := fmt.Sprint(ports.Free())
	process := exec.Command(os.Getenv("DLOCK_SERVER"), "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--dir", t.TempDir(), "--loadmodule", os.Getenv("DLOCK_MODULE"))
	if err := process.Start(); err != nil {
		t.Fatalf("DLOCK_SERVER and DLOCK_MODULE name the server of the tests, and tests/clients/go.sh sets them: %v", err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
	})
	s := &server{t, "127.0.0.1:" + port, process}
	s.soon("the server answers", func() bool { return s.ask("PING") == "+PONG" })
	return s
}

// ask returns the lines of a reply other than +OK, which is the reply to QUIT. Empty: the server does not answer now.
func (s *server) ask(line string) string {
	connection, err := net.Dial("tcp", s.address)
	if err != nil {
		return ""
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(connection, "%s\r\nQUIT\r\n", line)
	var text strings.Builder
	lines := bufio.NewScanner(connection)
	for lines.Scan() && lines.Text() != "+OK" {
		text.WriteString(lines.Text() + "\n")
	}
	return strings.TrimSpace(text.String())
}

func (s *server) waiters(number int) {
	s.t.Helper()
	s.soon(fmt.Sprintf("%d waiters", number), func() bool {
		return strings.Contains(s.ask("INFO dlock"), fmt.Sprintf("dlock_waiters:%d\n", number))
	})
}

func (s *server) isFree(name string) {
	s.t.Helper()
	s.soon(name+" is free", func() bool { return s.ask("DLOCK.INFO "+name) == "$-1" })
}

// hangs stops the process until the function that it returns is called.
func (s *server) hangs() func() {
	s.process.Process.Signal(syscall.SIGSTOP)
	return func() { s.process.Process.Signal(syscall.SIGCONT) }
}

func (s *server) soon(what string, condition func() bool) {
	s.t.Helper()
	for end := time.Now().Add(Patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not in time: %s", what)
		}
	}
}
