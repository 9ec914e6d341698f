package dlock_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy leads connections to a server, or refuses them.
type proxy struct {
	listener net.Listener

	mu   sync.Mutex
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

// lead ends all connections. New ones lead to an address; "" refuses them.
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
		io.Copy(server, client)
		server.Close()
	}()
	io.Copy(client, server)
}
