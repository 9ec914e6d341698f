package dlock

import (
	"bufio"
	"net"
	"time"
)

// wire is a connection of the client's own.
type wire struct {
	net.Conn
	reader *bufio.Reader
}

// start only writes: the deadline of the connection limits the wait for the replies.
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
