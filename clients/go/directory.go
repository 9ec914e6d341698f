package dlock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The answer of a Sentinel, or the map of a cluster, is asked for again after this time at the earliest: many
// goroutines may notice a failover at once.
const freshFor = 100 * time.Millisecond

// A Sentinel, or a node that is asked for the map, may take this time to answer.
const askOne = 500 * time.Millisecond

// directory asks servers where something is. One caller at a time asks, and the others wait for what it learns, each
// until its own deadline.
type directory struct {
	turn chan struct{}

	mu sync.Mutex
	// When each server last failed to answer, unless it has answered since. These servers are asked last.
	silent map[string]time.Time
	// The end of the last search in which all servers were asked and none answered, and the reason. Callers that had
	// queued by then fail, too.
	failed  time.Time
	failure error
}

func newDirectory() directory {
	return directory{turn: make(chan struct{}, 1), silent: map[string]time.Time{}}
}

// find asks servers, one after another, until one answers. It returns nil without asking if another caller
// has found the answer meanwhile.
func (d *directory) find(
	ctx context.Context, until time.Time, isKnown func() bool, servers func() []string,
	ask func(ctx context.Context, server string, until time.Time) error,
) error {
	queued := time.Now()
	if err := enter(ctx, d.turn, until); err == errBusy {
		return errSilent // The caller that asks has no answer yet.
	} else if err != nil {
		return err
	}
	defer func() { <-d.turn }()
	if isKnown() {
		return nil
	}
	if failure := d.failureSince(queued); failure != nil {
		return failure
	}
	var failure error
	for _, server := range d.ordered(servers()) {
		failure = ask(ctx, server, earlier(until, time.Now().Add(askOne)))
		if ctx.Err() != nil {
			return failure
		}
		d.notes(server, failure)
		if failure == nil || !time.Now().Before(until) {
			return failure
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed, d.failure = time.Now(), failure
	return failure
}

func (d *directory) failureSince(queued time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed.After(queued) {
		return d.failure
	}
	return nil
}

// ordered puts the servers that failed to answer behind the others, the latest failure last.
func (d *directory) ordered(servers []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	servers = slices.Clone(servers)
	slices.SortStableFunc(servers, func(a, b string) int { return d.silent[a].Compare(d.silent[b]) })
	return servers
}

func (d *directory) notes(server string, failure error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if failure == nil {
		delete(d.silent, server)
		return
	}
	d.silent[server] = time.Now()
}
