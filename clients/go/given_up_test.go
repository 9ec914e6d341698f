package dlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// forLong is longer than any test, so that a hold that is not released cannot lapse and look released.
const forLong = time.Hour

// other is an owner beside the client, with a connection of its own.
type other struct {
	s       *server
	conn    net.Conn
	replies *bufio.Reader
}

func newOther(s *server) *other {
	conn, err := net.Dial("tcp", s.address())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	o := &other{s, conn, bufio.NewReader(conn)}
	o.call("PING")
	return o
}

func (o *other) call(words ...string) string {
	o.s.t.Helper()
	send(o.conn, words...)
	o.conn.SetReadDeadline(time.Now().Add(patience))
	reply, err := readText(o.replies)
	if err != nil {
		o.s.t.Fatal(err)
	}
	return reply
}

func (o *other) holds() {
	o.call("DLOCK.ACQUIRE", "job", "other", "PX", fmt.Sprint(forLong.Milliseconds()))
}

func (o *other) releases() { o.call("DLOCK.RELEASE", "job", "other") }

// gets fails unless an owner that asks now gets the lock within 15 s. On a busy machine, the client's release may take
// seconds.
func (o *other) gets(what string) {
	o.s.t.Helper()
	if reply := o.call("DLOCK.ACQUIRE", "job", "next", "PX", "60000", "BLOCK", "15000"); reply[0] != ':' {
		o.s.t.Fatalf("%s: the lock is still held: %s", what, reply)
	}
	o.call("DLOCK.RELEASE", "job", "next")
}

// kinds returns the options of a client whose locks the server keeps by a session, and of one that renews its locks.
func kinds() map[string]dlock.ClientOption {
	return map[string]dlock.ClientOption{"kept": dlock.WithSession(time.Minute), "renewed": dlock.WithoutSession()}
}

// eachKind plays a test with each kind of client. Each has a server of its own, which it reaches through a proxy. The
// other owner has a direct connection to the same server.
func eachKind(t *testing.T, play func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other)) {
	t.Parallel()
	for name, option := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			p := startProxy(t, s.address())
			play(t, s, p, newClient(t, p.address(), option), newOther(s))
		})
	}
}

// waits has a client wait for the lock, which another owner holds. The function that it returns cancels the wait.
func (s *server) waits(client *dlock.Client) (giveUp func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		lock, err := client.Lock(ctx, "job", dlock.WithLease(forLong))
		if err == nil {
			err = unlock(lock)
		}
		ended <- err
	}()
	s.waiters(1)
	return func() {
		s.t.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			s.t.Fatal(err)
		}
	}
}

// spin lets time pass more exactly than time.Sleep.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func TestAWaitThatIsCanceledAsTheGrantComesLeavesNoHold(t *testing.T) {
	t.Parallel()
	for name, option := range kinds() {
		for _, late := range []time.Duration{0, 3 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, replies take %v", name, late), func(t *testing.T) {
				t.Parallel()
				s := startServer(t)
				p := startProxy(t, s.address())
				p.repliesTake.Store(int64(late))
				address := p.address()
				if late == 0 {
					address = s.address()
				}
				client, o := newClient(t, address, option), newOther(s)
				// The wait is canceled from 1 ms before the release to 6 ms after it.
				for offset := -time.Millisecond; offset < 6*time.Millisecond; offset += 50 * time.Microsecond {
					o.holds()
					giveUp := s.waits(client)
					released := make(chan struct{})
					go func() {
						defer close(released)
						spin(max(0, -offset))
						o.releases()
					}()
					spin(max(0, offset))
					giveUp()
					<-released
					o.gets(offset.String())
				}
			})
		}
	}
}

// A server may grant the lock to a connection until it has seen the end of the connection.
func TestAGrantToAConnectionWhoseEndComesLateIsReleased(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		p.endsTake.Store(int64(6 * time.Second))
		o.holds()
		s.waits(client)()
		// The client has ended its cleanup on other connections. Only the release behind the request is left.
		time.Sleep(3 * time.Second)
		o.releases()
		o.gets(t.Name())
	})
}

// A server that has seen the end of a connection closes the connection at the end of the turn of its event loop.
// Earlier in the same turn, the server may grant a lock to that connection.
func TestAGrantToAConnectionThatIsAboutToBeClosedIsReleased(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		for round := range 4 {
			p.endsTake.Store(int64(300 * time.Millisecond))
			o.holds()
			s.waits(client)()
			time.Sleep(200 * time.Millisecond) // The end of the connection has not reached the server yet.
			s.signal(syscall.SIGSTOP)
			// The end reaches the stopped server, and then a release does. The server meets both in one turn.
			time.Sleep(200 * time.Millisecond)
			send(o.conn, "DLOCK.RELEASE", "job", "other")
			time.Sleep(20 * time.Millisecond)
			s.signal(syscall.SIGCONT)
			readText(o.replies)
			o.gets(fmt.Sprintf("round %d", round))
		}
	})
}

// cleansUpAtOnce fails unless a client that gives up releases as soon as the server has closed the connection of the
// wait. A client that does not notice the close releases a second later. The machine may be busy, so one success in
// five tries is enough. Another owner must hold the lock.
func (s *server) cleansUpAtOnce(client *dlock.Client) {
	s.t.Helper()
	released := func() string { return s.info("commandstats", "cmdstat_dlock.release") }
	var took time.Duration
	for range 5 {
		before := released()
		giveUp := s.waits(client)
		began := time.Now()
		giveUp()
		eventually(s.t, "the client has released", func() bool { return released() != before })
		if took = time.Since(began); took < 700*time.Millisecond {
			return
		}
	}
	s.t.Fatalf("the client released only after %v", took)
}

func TestAClientThatGivesUpAwaitsTheEndOfItsConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address(), dlock.WithoutSession())
	newOther(s).holds()
	s.cleansUpAtOnce(client)
	s.waiters(0)
	// Three connections stay: the other owner's, that of INFO, and an idle one of the client.
	eventually(t, "the wait's connection ends", func() bool {
		number, err := strconv.Atoi(s.info("clients", "connected_clients"))
		return err == nil && number <= 3
	})
}
