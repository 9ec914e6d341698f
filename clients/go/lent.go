package dlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Conn is a connection of another client, such as go-redis or redigo. One goroutine uses it at a time.
type Conn interface {
	// Do sends commands in one piece, each with its arguments, and returns a reply for each: nil, an int or int64, a text
	// ([]byte or string), a []any, map[any]any or map[string]any of these, or, if the server answered with an error, an
	// error value. The error that Do itself returns says that some reply was not read. Do ends with ctx. The deadline of
	// ctx is that of the last reply; ctx has none if the replies may take any time. A Do that cannot be interrupted may
	// take longer.
	Do(ctx context.Context, commands ...[]string) ([]any, error)
	// Close is called once, when no Do is under way. It gives the connection back to where it came from. If a Do has
	// failed, it closes the connection: a late reply would be taken for that to another command.
	Close() error
}

// Over returns a client that uses connections of another one. The function open returns a connection for one caller,
// and may make a new one. When its context ends, open returns an error. Each exchange calls open, and so does each wait,
// which keeps its connection until the lock is granted. Addresses, users, databases, TLS and failovers are the business
// of the other client, so the options about them are refused.
func Over(open func(ctx context.Context) (Conn, error), options ...ClientOption) (*Client, error) {
	s, _, err := parse("another-client:1", options)
	if err != nil {
		return nil, err
	}
	if open == nil {
		return nil, errors.New("dlock: the function that returns connections is nil")
	}
	if !s.profile.isPlain() {
		return nil, errors.New("dlock: users, databases, TLS and dialers are those of the other client")
	}
	s.profile.open = open
	return newClient(s, fixed("another client"))
}

// borrows returns whether the connections are those of another client. There, an acquisition that is given up may still
// be executed later. Acquisitions therefore do not name the session, which would keep such a hold: the session binds
// the holds afterwards.
func (c *Client) borrows() bool { return c.profile.open != nil }

// lent is a connection of another client. Its commands are carried out by a goroutine, so that the caller can give up.
type lent struct {
	conn Conn
	// The end of ctx cancels the Do that is under way.
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	deadline time.Time     // of the replies; zero: none
	moved    chan struct{} // closed when the deadline is moved
	answered chan struct{} // closed when no Do is under way
	replies  []any
	err      error
	closed   bool
}

// borrow gets a connection of the other client. A connection that comes too late is given back.
func (p *profile) borrow(ctx context.Context) (*conn, error) {
	c, err := within(ctx, func() (Conn, error) { return p.open(ctx) }, func(c Conn) { c.Close() })
	if err != nil {
		return nil, err
	}
	l := &lent{conn: c, moved: make(chan struct{}), answered: make(chan struct{})}
	close(l.answered)
	l.ctx, l.cancel = context.WithCancel(p.last)
	return &conn{link: l, used: time.Now()}, nil
}

// start begins a Do with these commands, which ends at `until`; zero: never.
func (l *lent) start(commands []command, until time.Time) error {
	words := make([][]string, len(commands))
	for i, each := range commands {
		words[i] = each
	}
	ctx, cancel := l.ctx, context.CancelFunc(func() {})
	if !until.IsZero() {
		ctx, cancel = context.WithDeadline(l.ctx, until)
	}
	answered := make(chan struct{})
	l.mu.Lock()
	l.answered = answered
	l.mu.Unlock()
	go func() {
		replies, err := l.conn.Do(ctx, words...)
		cancel()
		if err == nil && len(replies) != len(words) {
			err = errProtocol
		}
		for i := range replies {
			replies[i] = plain(replies[i])
		}
		l.mu.Lock()
		l.replies, l.err = replies, err
		closed := l.closed
		close(answered)
		l.mu.Unlock()
		if closed {
			l.end()
		}
	}()
	return nil
}

// there waits until the Do has ended, or the deadline has passed.
func (l *lent) there() error {
	for {
		l.mu.Lock()
		answered, moved, deadline := l.answered, l.moved, l.deadline
		l.mu.Unlock()
		select {
		case <-answered:
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.err
		default:
		}
		var over <-chan time.Time
		if !deadline.IsZero() {
			timer := time.NewTimer(time.Until(deadline))
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-answered:
		case <-moved:
		case <-over:
			return os.ErrDeadlineExceeded
		}
	}
}

// next waits for the replies, and returns the first that was not returned yet.
func (l *lent) next() (any, error) {
	if err := l.there(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	reply := l.replies[0]
	l.replies = l.replies[1:]
	return reply, nil
}

// SetDeadline sets when a call that waits for replies gives up, also one that waits now.
func (l *lent) SetDeadline(at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = at
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
}

func (l *lent) SetWriteDeadline(time.Time) error { return nil }

// Close does not wait. It gives the connection back at once or, if a Do is under way, when that has ended. The Do ends
// soon if the caller undoes, on another connection, what it asked for. After cleanupLimit, the Do is canceled.
func (l *lent) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	select {
	case <-l.answered:
		go l.end()
	default:
		stop := time.AfterFunc(cleanupLimit, l.cancel)
		context.AfterFunc(l.ctx, func() { stop.Stop() })
	}
	return nil
}

func (l *lent) end() {
	l.conn.Close()
	l.cancel()
}

// plain returns a reply in the form that this client reads: a map becomes a slice of its keys and values.
func plain(reply any) any {
	switch value := reply.(type) {
	case []byte:
		return string(value)
	case int:
		return int64(value)
	case error:
		return ServerError(value.Error())
	case []any:
		values := make([]any, len(value))
		for i, each := range value {
			values[i] = plain(each)
		}
		return values
	case map[any]any:
		var pairs []any
		for key, each := range value {
			pairs = append(pairs, plain(key), plain(each))
		}
		return pairs
	case map[string]any:
		var pairs []any
		for key, each := range value {
			pairs = append(pairs, key, plain(each))
		}
		return pairs
	}
	return reply
}

// errNoReports is the error of a watch, which needs connections of this package.
var errNoReports = fmt.Errorf("dlock: the connections of another client do not report changes: %w", errors.ErrUnsupported)
