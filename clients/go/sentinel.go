package dlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// NewSentinel returns a client for the primary that Sentinels know under a name. The addresses of the Sentinels are
// "host:port"; the port is 26379 unless given. The options are for the primary; see [WithSentinelAuth].
func NewSentinel(primary string, sentinels []string, options ...ClientOption) (*Client, error) {
	if primary == "" || len(sentinels) == 0 {
		return nil, errors.New("dlock: the name of the primary and the addresses of Sentinels are needed")
	}
	s, addresses, err := parseAll(sentinels, "26379", options)
	if err != nil {
		return nil, err
	}
	r := &sentinel{primary: primary, addresses: addresses, directory: newDirectory()}
	r.profile = profile{
		user: s.sentinelUser, password: s.sentinelPassword, tls: s.profile.tls, dial: s.profile.dial,
	}
	return newClient(s, r)
}

// WithSentinelAuth logs in at the Sentinels of [NewSentinel].
func WithSentinelAuth(user, password string) ClientOption {
	return func(s *settings) error {
		s.sentinelUser, s.sentinelPassword = user, password
		return nil
	}
}

// parseAll returns the settings, and addresses with ports.
func parseAll(addresses []string, port string, options []ClientOption) (settings, []string, error) {
	// Parses the options. The address is not used.
	s, _, err := parse("none:1", options)
	if err != nil {
		return s, nil, err
	}
	var full []string
	for _, each := range addresses {
		if each, err = withPort(each, port); err != nil {
			return s, nil, err
		}
		full = append(full, each)
	}
	return s, full, nil
}

// sentinel is the router that asks Sentinels for the primary.
type sentinel struct {
	primary   string
	profile   profile
	addresses []string
	directory directory

	mu sync.Mutex
	// The primary that a Sentinel named last, and when.
	known string
	asked time.Time
}

func (s *sentinel) find(ctx context.Context, _ string, again bool, until time.Time) (string, error) {
	if known, ok := s.remembered(again); ok {
		return known, nil
	}
	err := s.directory.find(ctx, until, func() bool {
		_, ok := s.remembered(again)
		return ok
	}, func() []string { return s.addresses }, s.ask)
	// If no Sentinel names a primary, the last known one is used.
	if known, ok := s.remembered(false); ok && ctx.Err() == nil {
		return known, nil
	}
	return "", fmt.Errorf("no Sentinel says where %s is: %w", s.primary, err)
}

// remembered returns the primary if it is known. With `again`, a Sentinel must have named it just now.
func (s *sentinel) remembered(again bool) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.known != "" && (!again || time.Since(s.asked) < freshFor)
}

func (s *sentinel) learn(found string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.asked = found, time.Now()
}

func (s *sentinel) ask(ctx context.Context, address string, until time.Time) error {
	c, err := s.profile.connect(ctx, address, until)
	if err != nil {
		return err
	}
	defer c.close()
	replies, err := c.exchange(ctx, until, nil, command{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.primary})
	if err != nil {
		return err
	}
	if err := firstError(replies); err != nil {
		// The type ServerError would make this the answer of a server about a lock. The next Sentinel is asked instead.
		return errors.New(err.Error())
	}
	if pair, ok := replies[0].([]any); ok && len(pair) == 2 {
		host, isHost := pair[0].(string)
		port, isPort := pair[1].(string)
		if isHost && isPort {
			s.learn(net.JoinHostPort(host, port))
			return nil
		}
	}
	return fmt.Errorf("the Sentinel at %s does not know %s", address, s.primary)
}

// redirect does nothing: only nodes of a cluster redirect.
func (s *sentinel) redirect(string, ServerError) {}
