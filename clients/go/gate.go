package dlock

import (
	"context"
	"strings"
	"sync"
)

// gates limit how many acquisitions of a client wait for one lock in the queue of the server. The others wait in the
// client, in order.
type gates struct {
	size int
	mu   sync.Mutex
	all  map[string]*gate
}

type gate struct {
	inside int
	queue  []chan struct{}
}

func gateName(keys []string) string { return strings.Join(keys, "\x00") }

// isBusy returns whether acquisitions of this client wait for a lock.
func (g *gates) isBusy(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[name] != nil
}

// enter waits for a place. If there is no error, the caller has to call leave.
func (g *gates) enter(ctx context.Context, name string) error {
	g.mu.Lock()
	if g.all == nil {
		g.all = map[string]*gate{}
	}
	at := g.all[name]
	if at == nil {
		at = &gate{}
		g.all[name] = at
	}
	if at.inside < g.size {
		at.inside++
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	at.queue = append(at.queue, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		g.giveUp(name, turn)
		return context.Cause(ctx)
	}
}

// enterNow takes a place even if all are taken: the time of the acquisition is over, and it asks the server once more,
// without waiting. Its error is always nil.
func (g *gates) enterNow(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[name]
	if at == nil {
		at = &gate{}
		g.all[name] = at
	}
	at.inside++
	return nil
}

// giveUp leaves the queue. If the turn has come meanwhile, the next in the queue gets the place.
func (g *gates) giveUp(name string, turn chan struct{}) {
	g.mu.Lock()
	at := g.all[name]
	for i, each := range at.queue {
		if each == turn {
			at.queue = append(at.queue[:i], at.queue[i+1:]...)
			g.mu.Unlock()
			return
		}
	}
	g.mu.Unlock()
	g.leave(name)
}

func (g *gates) leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[name]
	if len(at.queue) > 0 && at.inside <= g.size {
		close(at.queue[0])
		at.queue = at.queue[1:]
		return
	}
	if at.inside--; at.inside == 0 {
		delete(g.all, name)
	}
}
