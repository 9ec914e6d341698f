package dlock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// command is a command with its arguments.
type command []string

// appendTo appends the command as the server reads it (RESP).
func (c command) appendTo(to []byte) []byte {
	to = append(to, '*')
	to = strconv.AppendInt(to, int64(len(c)), 10)
	to = append(to, '\r', '\n')
	for _, word := range c {
		to = append(to, '$')
		to = strconv.AppendInt(to, int64(len(word)), 10)
		to = append(to, '\r', '\n')
		to = append(to, word...)
		to = append(to, '\r', '\n')
	}
	return to
}

// The limits of a reply: bytes of a string or elements of an array, and how deep arrays are nested.
const (
	longestReply = 64 << 20
	deepestReply = 8
)

var errProtocol = errors.New("the server sent no valid reply")

// push is what a server says without having been asked (RESP3).
type push []any

// readReply reads a reply: nil, an int64, a string, a []any of these, a push, or a ServerError. A map (RESP3) is a []any
// of its keys and values, as in RESP2.
func readReply(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, broken(err)
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > deepestReply {
		return nil, errProtocol
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+', '#', ',', '(':
		return text, nil
	case '_':
		return nil, nil
	case '-':
		return ServerError(text), nil
	case ':':
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errProtocol
		}
		return number, nil
	case '$', '*', '%', '~', '>', '=':
		length, err := strconv.Atoi(text)
		if err != nil || length < -1 || length > longestReply {
			return nil, errProtocol
		}
		if length == -1 {
			return nil, nil
		}
		switch kind {
		case '$', '=':
			return readBulk(r, length)
		case '%':
			return readArray(r, 2*length, depth)
		case '>':
			values, err := readArray(r, length, depth)
			return push(values), err
		}
		return readArray(r, length, depth)
	}
	return nil, errProtocol
}

func readBulk(r *bufio.Reader, length int) (any, error) {
	bytes := make([]byte, length+2)
	if _, err := io.ReadFull(r, bytes); err != nil {
		return nil, broken(err)
	}
	return string(bytes[:length]), nil
}

func readArray(r *bufio.Reader, length, depth int) ([]any, error) {
	// The length is the server's word: the memory is taken as the elements come.
	values := make([]any, 0, min(length, 1024))
	for range length {
		value, err := readReply(r, depth+1)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// broken returns the error of a read in the middle of a reply, where an end of the input is unexpected.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the connection has ended: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// firstError returns the first reply that is an error.
func firstError(replies []any) error {
	for _, reply := range replies {
		if answer, ok := reply.(ServerError); ok {
			return answer
		}
	}
	return nil
}
