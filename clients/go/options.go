package dlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// The defaults, and what the server takes.
const (
	defaultLease = 30 * time.Second
	// How long a session lives after its last heartbeat.
	defaultSession = 10 * time.Second

	shortestLease = 300 * time.Millisecond
	longestLease  = 365 * 24 * time.Hour

	shortestSession = 900 * time.Millisecond
	longestSession  = time.Hour
)

// Option is an option of an acquisition, or of all acquisitions of a client ([WithDefaults]).
type Option func(*terms)

// terms are the options of an acquisition.
type terms struct {
	lease           time.Duration
	fixed           bool
	wait            time.Duration // with `limited`
	limited         bool
	outage          time.Duration
	replicas        int
	replicasTimeout time.Duration
	permits         int
	slot            bool
	maxHold         time.Duration
	atLeast         time.Duration
	beat            time.Duration
	label           string
}

// WithLease sets how long the lock stays if the program dies: 30 s by default, 300 ms or more. The client renews it.
func WithLease(lease time.Duration) Option { return func(t *terms) { t.lease = lease } }

// WithoutRenewal makes the lock end one lease after its grant, unless [Lock.Extend] is called.
func WithoutRenewal() Option { return func(t *terms) { t.fixed = true } }

// WithWait limits the waiting, beside what the context says. 0: do not wait.
func WithWait(limit time.Duration) Option {
	return func(t *terms) { t.wait, t.limited = limit, true }
}

// WithOutage sets how long a wait without a limit looks for a server since the last answer of one: 30 s by default.
func WithOutage(limit time.Duration) Option { return func(t *terms) { t.outage = limit } }

// WithReplicas makes that many replicas acknowledge the grant and each renewal, within a time. If fewer do, the lock is
// released, and the error is [ErrTooFewReplicas]. This makes it less likely that a failover loses the lock.
func WithReplicas(count int, timeout time.Duration) Option {
	return func(t *terms) { t.replicas, t.replicasTimeout = count, timeout }
}

// WithMaxHold ends the lock that long after the grant, even if it is renewed: 300 ms or more. It cuts a longer lease.
func WithMaxHold(limit time.Duration) Option { return func(t *terms) { t.maxHold = limit } }

// WithAtLeast makes the lock stay that long after the grant, even if it is unlocked earlier or the program dies: the next
// run of a job that is fast does not follow at once. The lease is as long as that from the beginning.
func WithAtLeast(time time.Duration) Option { return func(t *terms) { t.atLeast = time } }

// WithBeat makes the lock need a sign of life of the work: [Lock.Beat], at least this often. If it does not come, the lock
// is lost, and ends with its lease. Without this, a program of which only the work hangs keeps its locks.
func WithBeat(limit time.Duration) Option { return func(t *terms) { t.beat = limit } }

// settle makes the times fit together.
func (t *terms) settle() {
	t.lease = max(t.lease, t.atLeast)
	if t.maxHold > 0 && t.atLeast <= t.maxHold {
		t.lease = min(t.lease, t.maxHold)
	}
}

func (t *terms) check() error {
	switch {
	case t.maxHold != 0 && (t.maxHold < shortestLease || t.maxHold > longestLease):
		return fmt.Errorf("dlock: the limit of a hold must be between %v and %v, not %v", shortestLease, longestLease, t.maxHold)
	case t.atLeast < 0:
		return fmt.Errorf("dlock: a lock cannot stay for %v", t.atLeast)
	case t.maxHold > 0 && t.atLeast > t.maxHold:
		return fmt.Errorf("dlock: a lock cannot stay for %v, and end after %v", t.atLeast, t.maxHold)
	case t.beat < 0:
		return fmt.Errorf("dlock: the time between signs of life must be 0 or more, not %v", t.beat)
	case t.lease < shortestLease || t.lease > longestLease:
		return fmt.Errorf("dlock: a lease must be between %v and %v, not %v", shortestLease, longestLease, t.lease)
	case t.limited && t.wait < 0:
		return fmt.Errorf("dlock: the limit of a wait must be 0 or more, not %v", t.wait)
	case t.outage <= 0:
		return fmt.Errorf("dlock: the limit of an outage must be positive, not %v", t.outage)
	case t.replicas < 0 || t.replicas > 0 && t.replicasTimeout < time.Millisecond:
		return fmt.Errorf("dlock: replicas must be 0 or more, with a time of 1 ms or more, not %d with %v",
			t.replicas, t.replicasTimeout)
	}
	return checkLabel(t.label)
}

// ClientOption is an option of [New].
type ClientOption func(*settings) error

type settings struct {
	profile  profile
	defaults []Option
	pool     int
	waiters  int
	session  time.Duration

	sentinelUser, sentinelPassword string
}

// WithAuth logs in as an ACL user. With an empty user, it is the password of the server.
func WithAuth(user, password string) ClientOption {
	return func(s *settings) error {
		s.profile.user, s.profile.password = user, password
		return nil
	}
}

// WithLogin asks a function who the client is, for each new connection: a password that is replaced now and then, or a token
// that expires. With an empty user, the password is that of the server.
func WithLogin(login func(ctx context.Context) (user, password string, err error)) ClientOption {
	return func(s *settings) error {
		if login == nil {
			return errors.New("dlock: the function that tells the login is nil")
		}
		s.profile.login = login
		return nil
	}
}

// WithDatabase selects a database.
func WithDatabase(number int) ClientOption {
	return func(s *settings) error {
		if number < 0 {
			return fmt.Errorf("dlock: the number of a database must be 0 or more, not %d", number)
		}
		s.profile.database = number
		return nil
	}
}

// WithTLS encrypts the connections. A nil config is the default one, which checks the certificate of the server.
func WithTLS(config *tls.Config) ClientOption {
	return func(s *settings) error {
		if config == nil {
			config = &tls.Config{}
		}
		s.profile.tls = config.Clone()
		return nil
	}
}

// WithDialer makes the connections with this function.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) ClientOption {
	return func(s *settings) error {
		s.profile.dial = dial
		return nil
	}
}

// WithDefaults sets options for all acquisitions of the client.
func WithDefaults(options ...Option) ClientOption {
	return func(s *settings) error {
		s.defaults = append(s.defaults, options...)
		return nil
	}
}

// WithPool sets how many connections to a server carry commands that do not wait: 16 by default.
func WithPool(connections int) ClientOption {
	return func(s *settings) error {
		if connections < 1 {
			return errors.New("dlock: a pool has 1 connection or more")
		}
		s.pool = connections
		return nil
	}
}

// WithWaiters sets how many acquisitions of this client may wait for one lock in the queue of the server, each on a
// connection of its own: 16 by default. The others wait in the client, in order, and join the queue behind them.
func WithWaiters(connections int) ClientOption {
	return func(s *settings) error {
		if connections < 1 {
			return errors.New("dlock: 1 acquisition or more may wait")
		}
		s.waiters = connections
		return nil
	}
}

// WithSession sets how long the locks of a program that dies stay: 10 s by default, 900 ms to an hour. One session for
// each server keeps all locks of the client, with a heartbeat whenever a third of this time has passed. If no heartbeat
// succeeds for this time, or for two thirds of the lease of a lock, the lock is lost.
func WithSession(time time.Duration) ClientOption {
	return func(s *settings) error {
		if time < shortestSession || time > longestSession {
			return fmt.Errorf("dlock: the time of a session must be between %v and %v, not %v", shortestSession, longestSession, time)
		}
		s.session = time
		return nil
	}
}

// WithoutSession makes the client renew each lock by itself, whenever a third of its lease has passed.
func WithoutSession() ClientOption {
	return func(s *settings) error {
		s.session = 0
		return nil
	}
}
