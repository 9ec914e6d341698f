package dlock

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"time"
)

// profile says how a client connects: how to dial, as which user, and to which database. A change counts for connections
// that are made later.
type profile struct {
	user, password string
	// Returns user and password for each new connection, in place of the fixed ones.
	login    func(ctx context.Context) (user, password string, err error)
	database int
	tls      *tls.Config
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	// Takes a connection from another client of the program ([Over]), in place of all that is above.
	open func(ctx context.Context) (Conn, error)
	// Ends when this client has closed, and ends what its borrowed connections still do.
	last context.Context
}

// isPlain returns whether all options are unset that borrowed connections ignore: the other client decides them.
func (p *profile) isPlain() bool {
	return p.user == "" && p.password == "" && p.login == nil && p.database == 0 && p.tls == nil && p.dial == nil
}

// connect makes a connection and logs in, until `until` at most. It borrows the connection if there is another client.
func (p *profile) connect(ctx context.Context, address string, until time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if p.open != nil {
		return p.borrow(ctx)
	}
	raw, err := p.reach(ctx, address)
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		if raw, err = p.encrypted(ctx, raw, address); err != nil {
			return nil, err
		}
	}
	c := &conn{link: &wire{raw, bufio.NewReader(raw)}, used: time.Now()}
	hello, err := p.hello(ctx)
	if err == nil && len(hello) > 0 {
		var replies []any
		if replies, err = c.exchange(ctx, until, nil, hello...); err == nil {
			err = firstError(replies)
		}
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// reach makes a connection. A dialer of the program may take longer than its context: then what it makes is closed.
func (p *profile) reach(ctx context.Context, address string) (net.Conn, error) {
	if p.dial == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return within(ctx, func() (net.Conn, error) { return p.dial(ctx, "tcp", address) }, func(c net.Conn) { c.Close() })
}

// within returns what a function of the program makes, if it does so before ctx ends. A later result is discarded.
func within[T any](ctx context.Context, makes func() (T, error), discard func(T)) (T, error) {
	type result struct {
		made T
		err  error
	}
	made := make(chan result, 1)
	go func() {
		value, err := makes()
		made <- result{value, err}
	}()
	select {
	case r := <-made:
		if r.err == nil && ctx.Err() != nil { // A late result and the end of ctx may both be ready.
			discard(r.made)
			return r.made, context.Cause(ctx)
		}
		return r.made, r.err
	case <-ctx.Done():
		go func() {
			if r := <-made; r.err == nil {
				discard(r.made)
			}
		}()
		var none T
		return none, context.Cause(ctx)
	}
}

func (p *profile) encrypted(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	config := p.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return secure, nil
}

// hello returns the commands that are sent first on each connection: AUTH and SELECT, if they are needed.
func (p *profile) hello(ctx context.Context) ([]command, error) {
	user, password := p.user, p.password
	if p.login != nil {
		type pair struct{ user, password string }
		now, err := within(ctx, func() (pair, error) {
			user, password, err := p.login(ctx)
			return pair{user, password}, err
		}, func(pair) {})
		if err != nil {
			return nil, err
		}
		user, password = now.user, now.password
	}
	var commands []command
	if user != "" {
		commands = append(commands, command{"AUTH", user, password})
	} else if password != "" {
		commands = append(commands, command{"AUTH", password})
	}
	if p.database != 0 {
		commands = append(commands, command{"SELECT", strconv.Itoa(p.database)})
	}
	return commands, nil
}
