package dlock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// run keeps the session open, until it has nothing to do for a while.
func (h *home) run(ctx context.Context) {
	failures := 0
	for {
		if err := h.turn(ctx, failures > 0); err == nil {
			failures = 0
		} else {
			failures++
		}
		next, done := h.next(failures)
		if done {
			break
		}
		h.rest(ctx, next, failures > 0)
		if ctx.Err() != nil {
			h.end()
			break
		}
	}
	h.close()
}

// close closes the session. If the server does not answer, it ends by itself.
func (h *home) close() {
	for range 2 { // The connection may have been broken since the last heartbeat.
		_, err := h.exchange(h.all.client.last, command{"DLOCK.SESSION", h.id, "CLOSE"})
		if err == nil || isSilence(err) {
			break
		}
	}
	if h.conn != nil {
		h.conn.close()
	}
}

// rest waits for the next turn. After a failure nobody makes it shorter: thousands may want the session.
func (h *home) rest(ctx context.Context, pause time.Duration, failed bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	wake := h.wake
	if failed {
		wake = nil
	}
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// exchange sends commands on the connection of the session: a heartbeat waits behind nothing that the program does.
func (h *home) exchange(ctx context.Context, commands ...command) ([]any, error) {
	until := time.Now().Add(h.answerWithin())
	if h.conn != nil && (!h.conn.isClean() || h.conn.isStale()) {
		h.conn.close()
		h.conn = nil
	}
	if h.conn == nil {
		c, err := h.pool.make(ctx, until)
		if err != nil {
			return nil, err
		}
		h.conn = c
	}
	replies, err := h.conn.exchange(ctx, until, nil, commands...)
	if h.conn.isLent() {
		h.conn.close()
		h.conn = nil
	}
	if err == nil && !slices.ContainsFunc(replies, isNoAnswer) {
		h.pool.hears()
	}
	return replies, err
}

// answerWithin returns how long an exchange may take: if one hangs, there is time for others on new connections.
func (h *home) answerWithin() time.Duration {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	return answerWithin(3 * h.interval())
}

// end takes the home out of the sessions, because the client is closed.
func (h *home) end() {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.retire(ErrClosed)
}

func (h *home) retire(why error) {
	if h.all.homes[h.pool.address] == h {
		delete(h.all.homes, h.pool.address)
	}
	h.open, h.refused = nil, why
	if h.ending != nil {
		h.ending.Stop()
	}
	h.tell()
}

// next returns the pause until the next turn, or whether nothing is left to do.
func (h *home) next(failures int) (time.Duration, bool) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if len(h.locks) == 0 && h.users == 0 && len(h.debts) == 0 && time.Since(h.used) > h.all.time {
		h.retire(nil)
		return 0, true
	}
	h.planned = h.due(time.Now(), failures)
	return max(0, time.Until(h.planned)), false
}

// due returns when the next turn is due. The caller holds all.mu.
func (h *home) due(now time.Time, failures int) time.Time {
	beat := h.interval()
	switch {
	case failures == 0 && h.open != nil:
		return h.open.confirmed.Add(beat)
	case failures == 0:
		return now
	case h.open != nil && now.Before(h.open.life.until):
		return now.Add(retryAfter(3*beat, h.open.life.until.Sub(now)))
	}
	return now.Add(min(beat/4, backoff(failures-1)))
}

// interval returns the time between heartbeats: two of them may fail. The caller holds all.mu.
func (h *home) interval() time.Duration {
	reach := h.all.time
	for l := range h.locks {
		reach = min(reach, l.reach())
	}
	return reach / 3
}

// turn opens the session or sends a heartbeat, binds the locks that are not bound, and pays the debts. After a failure it
// looks whether its locks are elsewhere now.
func (h *home) turn(ctx context.Context, failed bool) error {
	if failed {
		h.relocate(ctx)
	}
	if err := h.beat(ctx); err != nil {
		return err
	}
	if err := h.bind(ctx); err != nil {
		return err
	}
	if err := h.learn(ctx); err != nil {
		return err
	}
	return h.pay(ctx)
}

// beat sends a heartbeat, or opens the session. It does nothing if no heartbeat is due.
func (h *home) beat(ctx context.Context) error {
	h.all.mu.Lock()
	open, how, number := h.open, "XX", 0
	if open == nil {
		how = "NX"
	} else if time.Since(open.confirmed) < h.interval() {
		h.all.mu.Unlock()
		return nil
	}
	expected := 0
	for l := range h.locks {
		if l.binding.to != nil {
			expected += len(l.target.keys)
		}
	}
	sent := time.Now()
	if open != nil {
		number = open.beats(sent)
	}
	h.all.mu.Unlock()
	replies, err := h.exchange(ctx, command{"DLOCK.SESSION", h.id, "PX", millis(h.all.time), how})
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if err != nil {
		if open != nil {
			open.cut(time.Now(), number)
		}
		if isAnswer(err) { // The server has refused the login.
			h.refused = err
			h.tell()
		}
		return err
	}
	return h.heard(replies[0], open, number, sent, expected)
}

// heard takes the reply to a heartbeat, or to what opens the session. `expected` is how many holds the server should
// have bound to it. The caller holds all.mu.
func (h *home) heard(reply any, open *opening, number int, sent time.Time, expected int) error {
	now := time.Now()
	switch answer := reply.(type) {
	case int64:
		h.all.client.hears()
		h.refused = nil
		if open == nil {
			h.open = opened(now, sent, h.id, h.all.time)
			h.tell()
			return nil
		}
		// A lost lock stays lost, although the session has outlived it.
		if over := h.over(now); len(over) > 0 {
			go h.lose(over)
			for _, l := range over {
				l.binding.unbinds()
			}
		}
		if answer < int64(expected) {
			// The server lacks a hold, and does not say which. Until a lock is bound again, this heartbeat and later ones
			// prove nothing about it.
			for l := range h.locks {
				l.binding.unbinds()
			}
		}
		open.ok(now, number)
		h.tell()
		return nil
	case nil:
		// The session was opened before, and that reply was lost. A new id has no such doubts.
		h.id = unique()
		return errors.New("the session is open already")
	case ServerError:
		if open != nil {
			open.life.refused(number)
			open.beat.failed(&open.life, now)
		}
		if answer.Code() == "NOSESSION" && open != nil {
			// The loss may have been heard by a command before. The next heartbeat opens the session again.
			if h.open != nil {
				h.lost()
			}
			h.nudge()
			return answer
		}
		// If the server is no primary any more, an acquisition that waits for the session has to find the next primary.
		if !answer.mayRepeat() || answer.isFromReplica() {
			h.refused = answer
			h.tell()
		}
		return answer
	}
	return errProtocol
}
