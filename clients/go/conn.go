package dlock

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// conn is a connection that one goroutine uses at a time. It counts the replies that the server owes. With a reply
// owed, the connection is closed and never used again: the next command would take that reply for its own.
type conn struct {
	link
	owed int
	// A context that ended has moved the deadline, perhaps after the command that it belonged to.
	spoiled bool
	// When the last reply came.
	used time.Time
	// The server has said that it is no primary.
	isReplica bool
	// The server reported a change of a watched lock while a reply was awaited.
	changed bool
	// The connection sends nothing any more, and is kept until the server has closed it.
	leaving bool
	closed  atomic.Bool
	pool    *pool // nil: the connection is in no pool
}

// link carries commands and their replies: over a connection of the client's own (wire), or of another client's (lent).
type link interface {
	// start sends commands, whose replies are awaited until the deadline. Zero: for as long as it takes.
	start(commands []command, until time.Time) error
	// next returns the next reply, if it comes by the deadline.
	next() (any, error)
	// there waits for the next reply, and leaves it unread. After the deadline has passed, the reply can still come.
	there() error
	SetDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// past is a deadline that ends any reading or writing at once.
var past = time.Unix(1, 0)

// exchange sends commands in one piece and returns the replies, each of which may be a ServerError. It ends with ctx
// and at the time given, whichever comes first. After any error, the connection is closed. If the server is only
// silent, the commands `undo` are sent before that.
func (c *conn) exchange(ctx context.Context, until time.Time, undo []command, commands ...command) ([]any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.SetDeadline(until)
	stop := c.endsWith(ctx)
	replies, err := c.talk(until, commands)
	c.spoiled = !stop() || c.spoiled
	if err != nil {
		if isSilence(err) && len(undo) > 0 {
			c.leave(undo)
		}
		c.close()
		if ctx.Err() != nil {
			err = &canceled{context.Cause(ctx)}
		}
		return nil, err
	}
	return replies, nil
}

// canceled says that a context ended while the server owed a reply. It counts as silence of the server, too.
type canceled struct{ cause error }

func (c *canceled) Error() string { return c.cause.Error() }
func (c *canceled) Unwrap() []error {
	return []error{c.cause, os.ErrDeadlineExceeded}
}

// isSilence returns whether no reply came on a connection that has not ended, as far as is known.
func isSilence(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// endsWith makes reading and writing end with ctx, until the returned function is called. This function returns false
// if ctx has ended meanwhile.
func (c *conn) endsWith(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { c.SetDeadline(past) })
}

func (c *conn) talk(until time.Time, commands []command) ([]any, error) {
	if err := c.send(until, commands...); err != nil {
		return nil, err
	}
	replies := make([]any, len(commands))
	for i := range replies {
		reply, err := c.read()
		if err != nil {
			return nil, err
		}
		replies[i] = reply
	}
	return replies, nil
}

func (c *conn) send(until time.Time, commands ...command) error {
	c.owed += len(commands)
	return c.start(commands, until)
}

func (c *conn) read() (any, error) {
	reply, err := c.next()
	if err == nil {
		c.owed--
		c.used = time.Now()
		answer, isError := reply.(ServerError)
		c.isReplica = c.isReplica || isError && answer.isFromReplica()
	}
	return reply, err
}

// answers waits for a reply. False: none came by the deadline, and the connection can still be used.
func (c *conn) answers() (bool, error) {
	err := c.there()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// leave sends commands behind the unanswered ones, and closes the connection: a server that executes the unanswered
// commands executes the new ones, too. Nothing is sent on a lent connection.
func (c *conn) leave(commands []command) {
	if !c.isLent() {
		// The commands are few: they can be written at once, unless the connection is stuck.
		limit := time.Now().Add(50 * time.Millisecond)
		c.SetWriteDeadline(limit)
		c.send(limit, commands...) // An error does not matter: a connection that has ended has nothing to undo.
	}
	c.close()
}

// half is a connection of which one direction can be closed.
type half interface{ CloseWrite() error }

// part sends commands behind a wait that nobody wants any more, and ends the sending side. The server then removes the
// request from the queue, and closes the connection. False: this end cannot be awaited, and the connection is closed.
//
// Closing the connection at once is not enough. The server may grant the lock before it sees the end. Its reply meets a
// closed connection, which is then reset, and the server drops the commands behind the wait.
func (c *conn) part(commands []command) bool {
	w, isWire := c.link.(*wire)
	if !isWire {
		c.close()
		return false
	}
	limit := time.Now().Add(50 * time.Millisecond)
	c.SetWriteDeadline(limit)
	end, canEnd := w.Conn.(half)
	if c.send(limit, commands...) != nil || !canEnd || end.CloseWrite() != nil {
		c.close()
		return false
	}
	c.leaving = true
	return true
}

// awaitEnd waits until the server has closed a connection after `part`, or until ctx or the time ends. Returns whether the
// server has closed it: then it executes no more of its commands. It may, after a reset.
func (c *conn) awaitEnd(ctx context.Context, until time.Time) bool {
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	defer c.close()
	w, isWire := c.link.(*wire)
	for isWire && time.Now().Before(until) {
		// A context that ended may have moved the deadline: then the wait goes on.
		c.SetDeadline(until)
		if _, err := io.Copy(io.Discard, w.Conn); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err == nil
		}
	}
	return false
}

// isClean returns whether the connection can be used for other commands.
func (c *conn) isClean() bool { return c.owed == 0 && !c.spoiled && !c.isReplica && !c.closed.Load() }

// isStale returns whether a server or a firewall may have forgotten an idle connection.
func (c *conn) isStale() bool { return time.Since(c.used) >= longestIdle }

func (c *conn) isLent() bool {
	_, lent := c.link.(*lent)
	return lent
}

func (c *conn) close() {
	if c.closed.CompareAndSwap(false, true) {
		c.Close()
		if c.pool != nil {
			c.pool.forget(c)
		}
	}
}
