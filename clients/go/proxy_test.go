package dlock_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy leads connections to a server, or refuses them.
type proxy struct {
	listener net.Listener
	// How long replies take, and how much later the server learns that the client has ended a connection. Nanoseconds.
	repliesTake, endsTake atomic.Int64
	// The next command to hold back, if any.
	keeps atomic.Pointer[kept]
	// The end of a silence, in nanoseconds since 1970: nothing passes before it.
	silentUntil atomic.Int64
	// The fault at one of the next replies, if any.
	falls atomic.Pointer[fall]

	mu   sync.Mutex // guards the fields below
	to   string
	open map[net.Conn]struct{}
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: to, open: map[net.Conn]struct{}{}}
	go p.accept()
	t.Cleanup(p.close)
	return p
}

func (p *proxy) close() {
	p.listener.Close()
	p.lead("")
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// lead ends all connections. New connections lead to this address; with "", they are refused.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	for c := range p.open {
		c.Close()
	}
	p.open = map[net.Conn]struct{}{}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.pass(client)
	}
}

// fall is a fault at the next reply that contains a word. Either the reply passes, and nothing more for some time, or
// the reply is lost, and its connection ends after that time.
type fall struct {
	at     []byte
	lasts  time.Duration
	isLost bool
}

// fallsSilent lets the next reply with this word pass, and nothing more for some time.
func (p *proxy) fallsSilent(word string, lasts time.Duration) {
	p.falls.Store(&fall{[]byte(word), lasts, false})
}

// loses drops the next reply with this word, and ends its connection some time later.
func (p *proxy) loses(word string, later time.Duration) {
	p.falls.Store(&fall{[]byte(word), later, true})
}

// silence lets nothing pass for some time, in either direction.
func (p *proxy) silence(lasts time.Duration) { p.silentUntil.Store(time.Now().Add(lasts).UnixNano()) }

func (p *proxy) awaitSound() {
	for {
		left := time.Until(time.Unix(0, p.silentUntil.Load()))
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// kept is a command to hold back, which has the word `from`, until `arrives` is closed.
type kept struct {
	from    []byte
	arrives chan struct{}
	// The client's connection ends at once.
	breaks bool
	// The client's connection, when the command has come.
	client chan net.Conn
}

// keepFrom holds back the next command with this word, and what follows on the same connection, until the function that
// keepFrom returns is called.
func (p *proxy) keepFrom(word string) (arrives func()) { return p.keep(word, false).arrive }

// breaksAt does what keepFrom does, and ends the client's connection: the command gets no answer, and arrives late.
func (p *proxy) breaksAt(word string) (arrives func()) { return p.keep(word, true).arrive }

// resetsAt does what keepFrom does. The first function resets the client's connection.
func (p *proxy) resetsAt(word string) (resets, arrives func()) {
	k := p.keep(word, false)
	return func() {
		client := (<-k.client).(*net.TCPConn)
		client.SetLinger(0)
		client.Close()
	}, k.arrive
}

func (p *proxy) keep(word string, breaks bool) *kept {
	k := &kept{[]byte(word), make(chan struct{}), breaks, make(chan net.Conn, 1)}
	p.keeps.Store(k)
	return k
}

func (k *kept) arrive() { close(k.arrives) }

func (p *proxy) pass(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.open[client], p.open[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				break
			}
			if k := p.keeps.Load(); k != nil && bytes.Contains(buffer[:n], k.from) && p.keeps.CompareAndSwap(k, nil) {
				k.client <- client
				if k.breaks {
					client.Close()
				}
				<-k.arrives
			}
			p.awaitSound()
			server.Write(buffer[:n])
		}
		time.Sleep(time.Duration(p.endsTake.Load()))
		server.(*net.TCPConn).CloseWrite()
	}()
	buffer := make([]byte, 4096)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(p.repliesTake.Load()))
		p.awaitSound()
		if f := p.falls.Load(); f != nil && bytes.Contains(buffer[:n], f.at) && p.falls.CompareAndSwap(f, nil) {
			if f.isLost {
				time.Sleep(f.lasts)
				return
			}
			p.silence(f.lasts)
		}
		// An error does not end the loop: if the client has closed the connection, the server may not have seen that
		// yet.
		client.Write(buffer[:n])
	}
}
