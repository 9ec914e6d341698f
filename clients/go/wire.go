package dlock

import (
	"bufio"
	"net"
	"time"
)

// wire is a connection that the client has made itself, in contrast to one that another client lends.
type wire struct {
	net.Conn
	reader *bufio.Reader
}

// start writes commands, and needs no time: the deadline of the connection limits the wait for their replies.
func (w *wire) start(commands []command, _ time.Time) error {
	var bytes []byte
	for _, each := range commands {
		bytes = each.appendTo(bytes)
	}
	_, err := w.Write(bytes)
	return err
}

func (w *wire) next() (any, error) { return readReply(w.reader, 0) }

// there waits for the first byte of the next reply.
func (w *wire) there() error {
	_, err := w.reader.Peek(1)
	return broken(err)
}
