// Package gocron lets the schedulers of gocron run each job in one program, by locks of dlock.
//
//	import adapter "dlock.example/dlock/clients/go/gocron"
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(adapter.Locker(client, dlock.WithAtLeast(d))))
package gocron

import (
	"context"

	dlock "dlock.example/dlock/clients/go"
	"github.com/go-co-op/gocron/v2"
)

// Locker returns a locker for gocron.WithDistributedLocker. A lock has the name of the job: name jobs with gocron.WithName.
//
// Without options, a job runs twice if the clocks of two programs differ by more than the job takes.
// [dlock.WithAtLeast] prevents this with a time that is longer than that difference, and shorter than the time between
// two runs.
func Locker(client *dlock.Client, options ...dlock.Option) gocron.Locker {
	return locker{client, options}
}

type locker struct {
	client  *dlock.Client
	options []dlock.Option
}

// Lock implements gocron.Locker.
func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := l.client.TryLock(ctx, key, l.options...)
	if err != nil {
		return nil, err // not lock: an interface with a nil *dlock.Lock in it is not nil
	}
	return lock, nil
}
