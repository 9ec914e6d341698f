package dlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/ports"
)

// patience is how long a condition may take on a busy machine.
const patience = 30 * time.Second

// server is a server of its own for a test: DLOCK_SERVER with the module DLOCK_MODULE.
type server struct {
	t       testing.TB
	port    int
	home    string
	more    []string
	process *exec.Cmd
}

// address is that of the server of the examples.
var address string

func TestMain(m *testing.M) {
	if at := os.Getenv("DLOCK_GO_HOLDS"); at != "" {
		holdForever(at)
	}
	if at := os.Getenv("DLOCK_GO_TAKES_TURNS"); at != "" {
		takeTurnsForever(at)
	}
	if at := os.Getenv("DLOCK_GO_WAITS"); at != "" {
		waitAndBelieve(at)
	}
	go watchLateness()
	ended := func() int {
		if os.Getenv("DLOCK_SERVER") == "" {
			return m.Run() // A test that needs a server fails, and names what is missing.
		}
		s, err := newServer("examples")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer s.remove()
		address = s.address()
		return m.Run()
	}()
	os.Exit(ended)
}

// late is by how much this machine was late so far, as a goroutine that sleeps sees it.
var late atomic.Int64

// hands is the number of threads and processes that an operation passes through, each of which may be late.
const hands = 3

// stopwatch measures how long something takes, and how much of that may be delays of a busy machine.
type stopwatch struct {
	began        time.Time
	late, waited time.Duration
}

func startWatch() stopwatch {
	return stopwatch{time.Now(), time.Duration(late.Load()), waitedForACore()}
}

// took returns the time since the start, and how much of it may be the machine's.
func (w stopwatch) took() (took, machine time.Duration) {
	took = time.Since(w.began)
	time.Sleep(20 * time.Millisecond) // The last delay is counted by then.
	return took, hands*(time.Duration(late.Load())-w.late) + waitedForACore() - w.waited
}

// within fails the test if more time than that has passed.
func (w stopwatch) within(t testing.TB, most time.Duration, what string) {
	t.Helper()
	if took, machine := w.took(); took > most+machine {
		t.Errorf("%s: it took %v, of which %v may be the machine's, not %v", what, took, machine, most)
	}
}

// waitedForACore returns for how long some process was ready to run and had no core. Without pressure files: 0.
func waitedForACore() time.Duration {
	var some, micros string
	pressure, _ := os.ReadFile("/proc/pressure/cpu")
	some, _, _ = strings.Cut(string(pressure), "\n")
	_, micros, _ = strings.Cut(some, "total=")
	waited, _ := strconv.Atoi(micros)
	return time.Duration(waited) * time.Microsecond
}

// watchLateness runs as long as the tests.
func watchLateness() {
	for {
		began := time.Now()
		time.Sleep(5 * time.Millisecond)
		late.Add(int64(max(0, time.Since(began)-6*time.Millisecond)))
	}
}

// holdForever takes a lock and keeps it, in a process that a test kills.
func holdForever(at string) {
	client, err := dlock.New(at, dlock.WithSession(time.Second))
	if err == nil {
		_, err = client.Lock(context.Background(), "job", dlock.WithLease(10*time.Minute))
	}
	fmt.Println("holds", err)
	select {}
}

func newServer(name string, more ...string) (*server, error) {
	home, err := os.MkdirTemp("", "dlock-go-"+name)
	if err != nil {
		return nil, err
	}
	s := &server{port: ports.Free(), home: home, more: more}
	return s, s.begin()
}

func (s *server) remove() {
	s.stop()
	os.RemoveAll(s.home)
}

func startServer(t testing.TB, more ...string) *server {
	t.Helper()
	s, err := newServer("test", more...)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(s.remove)
	return s
}

// begin starts the process, and waits until it answers.
func (s *server) begin() error {
	binary, module := os.Getenv("DLOCK_SERVER"), os.Getenv("DLOCK_MODULE")
	if binary == "" || module == "" {
		return errors.New("DLOCK_SERVER and DLOCK_MODULE name the server of the tests: tests/clients/go.sh sets them")
	}
	log := filepath.Join(s.home, "log")
	arguments := []string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--save", "", "--dir", s.home, "--logfile", log,
		"--loadmodule", module,
	}
	s.process = exec.Command(binary, append(arguments, s.more...)...)
	if err := s.process.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		reply, err := s.try("PING")
		if err == nil && (reply == "+PONG" || strings.HasPrefix(reply, "-NOAUTH")) {
			return nil
		}
	}
	text, _ := os.ReadFile(log)
	return fmt.Errorf("the server does not answer: %s", text)
}

func (s *server) stop() {
	if s.process != nil {
		s.process.Process.Kill()
		s.process.Wait()
		s.process = nil
	}
}

func (s *server) signal(signal syscall.Signal) { s.process.Process.Signal(signal) }

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// call sends a command over a connection of its own, and returns the reply as try does.
func (s *server) call(words ...string) string {
	s.t.Helper()
	reply, err := s.try(words...)
	if err != nil {
		s.t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// try returns the line of a simple reply ("+PONG", ":1", "$-1"), the text of a bulk string, or the parts of an array,
// with spaces between them.
func (s *server) try(words ...string) (string, error) {
	connection, err := net.DialTimeout("tcp", s.address(), time.Second)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(10 * time.Second))
	send(connection, words...)
	return readText(bufio.NewReader(connection))
}

func send(connection net.Conn, words ...string) {
	fmt.Fprintf(connection, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(connection, "$%d\r\n%s\r\n", len(word), word)
	}
}

func readText(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	var length int
	fmt.Sscanf(line[1:], "%d", &length)
	switch {
	case line[0] == '$' && length >= 0:
		bytes := make([]byte, length+2)
		for read := 0; read < len(bytes); {
			n, err := from.Read(bytes[read:])
			if err != nil {
				return "", err
			}
			read += n
		}
		return string(bytes[:length]), nil
	case line[0] == '*' && length >= 0:
		var parts []string
		for range length {
			part, err := readText(from)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, " "), nil
	}
	return line, nil
}

// info returns a field of INFO. Empty: there is none, or the server does not answer now.
func (s *server) info(section, field string) string {
	reply, _ := s.try("INFO", section)
	for _, line := range strings.Split(reply, "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

func (s *server) waiters(number int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d waiters", number), func() bool {
		return s.info("dlock", "dlock_waiters") == fmt.Sprint(number)
	})
}

func (s *server) isFree(name string) {
	s.t.Helper()
	eventually(s.t, name+" is free", func() bool {
		reply, err := s.try("DLOCK.INFO", name)
		return err == nil && reply == "$-1"
	})
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func newClient(t testing.TB, address string, options ...dlock.ClientOption) *dlock.Client {
	t.Helper()
	client, err := dlock.New(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func acquire(t testing.TB, client *dlock.Client, name string, options ...dlock.Option) *dlock.Lock {
	t.Helper()
	lock, err := client.Lock(context.Background(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func release(t testing.TB, lock *dlock.Lock) {
	t.Helper()
	if err := unlock(lock); err != nil {
		t.Fatal(err)
	}
}

// unlock releases a lock, with more time than an unlock has by itself: on a busy machine the answer comes late.
func unlock(lock *dlock.Lock) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return lock.Unlock(ctx)
}

// extend extends a lock. On a busy machine the answer may come after the limit of an extension: then it is sent again.
func extend(lock *dlock.Lock, lease time.Duration) (err error) {
	for end := time.Now().Add(patience); ; {
		err = lock.Extend(context.Background(), lease)
		if !errors.Is(err, dlock.ErrUnreachable) || time.Now().After(end) {
			return err
		}
	}
}

// refused fails unless a try is refused. On a busy machine the answer may come after the limit of a try: then there is
// another one.
func refused(t testing.TB, try func() (*dlock.Lock, error)) {
	t.Helper()
	_, err := try()
	for end := time.Now().Add(patience); errors.Is(err, dlock.ErrUnreachable) && time.Now().Before(end); {
		_, err = try()
	}
	if !errors.Is(err, dlock.ErrNotGranted) {
		t.Fatalf("a try that the server should refuse: %v", err)
	}
}

// isHeld fails unless the server refuses a lock.
func isHeld(t testing.TB, client *dlock.Client, name string) {
	t.Helper()
	refused(t, func() (*dlock.Lock, error) { return client.TryLock(context.Background(), name) })
}

// freeze stops the process of the server until thaw, or the end of the test.
func freeze(t testing.TB, s *server) {
	s.signal(syscall.SIGSTOP)
	t.Cleanup(func() { thaw(s) })
}

func thaw(s *server) {
	if s.process != nil {
		s.signal(syscall.SIGCONT)
	}
}
