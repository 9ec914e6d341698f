package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The ways in which a lock fails. Compare with [errors.Is]: what is returned says more.
var (
	// ErrNotGranted: a server said that the lock was not granted, at once or within the limit.
	ErrNotGranted = errors.New("the lock was not granted")
	// ErrUnreachable: no server answered in time, so nothing is known.
	ErrUnreachable = errors.New("no server answered in time")
	// ErrLost: the lock is lost, or must be assumed lost.
	ErrLost = errors.New("the lock is lost")
	// ErrTooFewReplicas: fewer replicas than asked for acknowledged the grant or the renewal. A grant was released.
	ErrTooFewReplicas = errors.New("too few replicas acknowledged")
	// ErrDeadlock: the wait would never have ended. The error of the server names each step.
	ErrDeadlock = errors.New("the wait would close a deadlock")
	// ErrNoModule: the server does not have the dlock module.
	ErrNoModule = errors.New("is the dlock module loaded on this server?")
	// ErrReleased: the lock was released before, by this program.
	ErrReleased = errors.New("the lock was released")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("the client is closed")
)

// ServerError is an error that the server answered.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Code returns the first word of the error. Look at it, and not at the text, which may become clearer.
func (e ServerError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// Is lets [errors.Is] find [ErrDeadlock] and [ErrNoModule] in the answers that mean them.
func (e ServerError) Is(target error) bool {
	switch target {
	case ErrDeadlock:
		return e.Code() == "DEADLOCK"
	case ErrNoModule:
		text := strings.ToLower(string(e))
		return strings.HasPrefix(text, "err unknown command") && strings.Contains(text, "dlock.")
	}
	return false
}

// mayRepeat returns whether the same command may be sent again, perhaps to another server: it was not executed, because
// this server cannot do it now, or nobody knows.
func (e ServerError) mayRepeat() bool {
	switch e.Code() {
	case "LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN":
		return true
	case "ERR":
		return strings.HasPrefix(string(e), "ERR max number of clients reached") || e.isFromReplica()
	case "UNBLOCKED":
		return strings.Contains(string(e), "state changed")
	}
	return e.isFromReplica()
}

// isFromReplica returns whether a server says that it is no primary. Commands that it executed before this answer stay
// executed.
func (e ServerError) isFromReplica() bool {
	switch e.Code() {
	case "READONLY", "MASTERDOWN":
		return true
	}
	return strings.HasPrefix(string(e), "ERR WAIT cannot be used with replica")
}

// writesNothing returns whether the server writes nothing at present, and so renews nothing. The hold is still there
// until its lease ends.
func writesNothing(err error) bool {
	var answer ServerError
	return errors.As(err, &answer) && slices.Contains([]string{"NOREPLICAS", "MISCONF", "BUSY"}, answer.Code())
}

// isStarting returns whether a reply is that of a server that is starting, or of an agent that reaches no server: it is
// no answer yet.
func isStarting(reply any) bool {
	answer, ok := reply.(ServerError)
	return ok && answer.Code() == "LOADING"
}

// isNoAnswer returns whether a reply says only that this server cannot answer now: an outage goes on.
func isNoAnswer(reply any) bool {
	answer, ok := reply.(ServerError)
	return ok && answer.mayRepeat()
}

// isAnswer returns whether an error is a server's final answer to a command, which need not be sent again.
func isAnswer(err error) bool {
	var answer ServerError
	return errors.As(err, &answer) && !answer.mayRepeat()
}

// unsent says why a command was not sent.
type unsent struct{ cause error }

func (u *unsent) Error() string { return u.cause.Error() }
func (u *unsent) Unwrap() error { return u.cause }

// isOpen returns whether the command may have been executed: a wait was ended, or an agent has no answer of its
// servers. A server that starts, and executes nothing, says "LOADING Redis is loading …" with its own name. An agent's
// text may quote that further on.
func (e ServerError) isOpen() bool {
	words := strings.Fields(string(e))
	isStarting := len(words) > 3 && words[2] == "is" && words[3] == "loading"
	return e.Code() == "UNBLOCKED" || e.Code() == "LOADING" && !isStarting
}

// isUnread returns whether an error leaves open what became of a command that was sent.
func isUnread(err error) bool {
	var before *unsent
	var answer ServerError
	if errors.As(err, &answer) {
		return answer.isOpen()
	}
	return err != nil && !errors.As(err, &before)
}

// failure is an error of this package about a lock, with its cause.
type failure struct {
	kind  error
	name  string
	cause error
}

func (f *failure) Error() string {
	text := fmt.Sprintf("dlock: %s: %v", f.name, f.kind)
	if f.cause != nil {
		text += ": " + f.cause.Error()
	}
	return text
}

func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// explained adds the name of the lock to what the server answered.
func explained(name string, err error) error {
	if errors.Is(err, ErrNoModule) {
		return &failure{ErrNoModule, name, err}
	}
	if errors.Is(err, ErrDeadlock) {
		return &failure{ErrDeadlock, name, err}
	}
	return fmt.Errorf("dlock: %s: %w", name, err)
}

// explainedHold adds the name of the lock to an error about a hold, if the error does not have it yet. If the key has
// another type, the hold has gone with the key.
func explainedHold(name string, err error) error {
	switch {
	case errors.Is(err, ErrLost):
		return err
	case isOverwritten(err):
		return &failure{ErrLost, name, err}
	}
	return explained(name, err)
}

// isOverwritten returns whether a key has another type.
func isOverwritten(err error) bool {
	var answer ServerError
	return errors.As(err, &answer) && answer.Code() == "WRONGTYPE"
}

// foreign says that another program has the name of a lock, and the limit that has passed, if one has.
type foreign struct{ cause, limit error }

func (f *foreign) Error() string { return "the key is no lock of dlock: " + f.cause.Error() }

func (f *foreign) Unwrap() []error {
	if f.limit == nil {
		return []error{f.cause}
	}
	return []error{f.limit, f.cause}
}

var errNoHold = errors.New("the server has no such hold")

// limitOf returns [context.DeadlineExceeded] if the deadline of ctx has passed, or is about to: the last answer may
// come a moment earlier.
func limitOf(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 5*time.Millisecond {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// isCanceled returns whether the caller has given up, and did not just set a limit that has passed.
func isCanceled(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
}
