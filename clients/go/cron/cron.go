// Package cron lets the schedulers of robfig/cron run each job in one program, by locks of dlock.
//
//	import adapter "dlock.example/dlock/clients/go/cron"
//
//	chain := cron.NewChain(adapter.Locked(client, "report", cron.DefaultLogger, dlock.WithAtLeast(d)))
//	scheduler.AddJob("@hourly", chain.Then(job))
package cron

import (
	"context"
	"errors"

	dlock "dlock.example/dlock/clients/go"
	"github.com/robfig/cron/v3"
)

// Locked skips a run of the job while another program has the lock of this name, and logs why. If the lock is lost
// during a run, Locked logs that at once: the job has no context, so it is not stopped, and another program may begin it.
//
// Without options, a job runs twice if the clocks of two programs differ by more than the job takes.
// [dlock.WithAtLeast] prevents this with a time that is longer than that difference, and shorter than the time between
// two runs.
func Locked(client *dlock.Client, name string, log cron.Logger, options ...dlock.Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ctx := context.Background()
			lock, err := client.TryLock(ctx, name, options...)
			switch {
			case errors.Is(err, dlock.ErrNotGranted):
				log.Info("skip", "held elsewhere", name)
				return
			case err != nil:
				log.Error(err, "skip", "lock", name)
				return
			}
			during := lock.Context()
			stopReport := context.AfterFunc(during, func() { log.Error(context.Cause(during), "lost", "lock", name) })
			defer func() {
				// If the loss is reported already, the failure of the release adds nothing.
				isUnreported := stopReport()
				if err := lock.Unlock(ctx); err != nil && isUnreported {
					log.Error(err, "unlock", "lock", name)
				}
			}()
			job.Run()
		})
	}
}
