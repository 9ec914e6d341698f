package dlock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The answer of a Sentinel, or the map of a cluster, is asked for again after this time at the earliest: many goroutines
// may notice a failover at once.
const freshFor = 100 * time.Millisecond

// A Sentinel, or a node that is asked for the map, may take this time to answer.
const askOne = 500 * time.Millisecond

// directory asks servers where something is. One caller asks at a time, for all that want to know. The others wait no
// longer than each of them may.
type directory struct {
	turn chan struct{}

	mu sync.Mutex
	// The servers that failed to answer, and when. They are asked last.
	silent map[string]time.Time
	// When and why a search found no server that answers. Callers that queued before its end fail for the same reason.
	failed  time.Time
	failure error
}

func newDirectory() directory {
	return directory{turn: make(chan struct{}, 1), silent: map[string]time.Time{}}
}

// find asks servers, one after another, until one answers. It returns nil without asking if others found out meanwhile.
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

// ordered returns servers, those last that failed last.
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
