// Package redislock has what the tests of bsm/redislock use, by dlock's package for Go, as docs/migration.md tells.
package redislock

import (
	"context"
	"errors"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"github.com/redis/go-redis/v9"
)

var (
	ErrNotObtained = errors.New("not obtained")
	ErrLockNotHeld = errors.New("lock not held")
)

type Client struct{ rdb *redis.Client }

func New(rdb *redis.Client) *Client { return &Client{rdb} }

type RetryStrategy interface{ NextBackoff() time.Duration }

type Options struct {
	RetryStrategy RetryStrategy
	Metadata      string
	Token         string
}

// limited is a strategy with a constant pause. left is the number of tries that are left; a negative one is no limit.
type limited struct {
	pause time.Duration
	left  int
}

func (l *limited) NextBackoff() time.Duration {
	if l.left == 0 {
		return 0
	}
	l.left--
	return l.pause
}

func LinearBackoff(pause time.Duration) RetryStrategy { return &limited{pause, -1} }

func LimitRetry(s RetryStrategy, most int) RetryStrategy { return &limited{s.NextBackoff(), most} }

// Lock is a lock that nothing renews.
type Lock struct {
	client   *dlock.Client
	lock     *dlock.Lock
	metadata string
}

func Obtain(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration, o *Options) (*Lock, error) {
	return New(rdb).Obtain(ctx, key, ttl, o)
}

// Obtain makes a client of dlock for each lock, which Release closes: a client of bsm/redislock has no Close.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, o *Options) (*Lock, error) {
	if o == nil {
		o = &Options{}
	}
	at := c.rdb.Options()
	client, err := dlock.New(at.Addr, dlock.WithDatabase(at.DB), dlock.WithoutSession())
	if err != nil {
		return nil, err
	}
	// A wait ends with the context, or after the time of the lock if the context has no deadline, as in bsm/redislock.
	most := ttl
	if deadline, has := ctx.Deadline(); has {
		most = time.Until(deadline)
	}
	lock, err := client.Lock(ctx, key, dlock.WithLease(ttl), dlock.WithoutRenewal(), dlock.WithWait(o.patience(most)))
	if err == nil {
		return &Lock{client, lock, o.Metadata}, nil
	}
	client.Close()
	if errors.Is(err, dlock.ErrNotGranted) {
		return nil, ErrNotObtained
	}
	return nil, err
}

// patience returns the sum of the pauses between the tries, or most if the sum is larger: a strategy may have no limit.
func (o *Options) patience(most time.Duration) time.Duration {
	var all time.Duration
	for o.RetryStrategy != nil && all < most {
		pause := o.RetryStrategy.NextBackoff()
		if pause <= 0 {
			break
		}
		all += pause
	}
	return max(0, min(all, most))
}

func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, _ *Options) error {
	if err := l.lock.Extend(ctx, ttl); !errors.Is(err, dlock.ErrLost) {
		return err
	}
	return ErrNotObtained
}

func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	defer l.client.Close()
	if err := l.lock.Unlock(ctx); !errors.Is(err, dlock.ErrLost) {
		return err
	}
	return ErrLockNotHeld
}

func (l *Lock) TTL(context.Context) (time.Duration, error) { return l.lock.Remaining(), nil }

func (l *Lock) Token() string { return l.lock.Owner() }

func (l *Lock) Metadata() string { return l.metadata }
