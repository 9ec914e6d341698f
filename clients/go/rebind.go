package dlock

import (
	"context"
	"time"
)

// The most locks that are asked about in one exchange.
const locksAtOnce = 100

// each sends the commands of locks, which have one for each key, and passes the replies of each lock to take. After an
// exchange with a lock for which take fails, no other exchange follows.
func (h *home) each(
	ctx context.Context, locks []*Lock, commands func(*Lock) []command, take func(*Lock, []any, time.Time) error,
) error {
	for len(locks) > 0 {
		some := locks[:min(locksAtOnce, len(locks))]
		locks = locks[len(some):]
		var batch []command
		for _, l := range some {
			batch = append(batch, commands(l)...)
		}
		sent := time.Now()
		replies, err := h.exchange(ctx, batch...)
		if err != nil {
			return err
		}
		for _, l := range some {
			mine := replies[:len(l.target.keys)]
			replies = replies[len(mine):]
			if failed := take(l, mine, sent); failed != nil {
				err = failed
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// those returns the locks of the home for which the function returns true.
func (h *home) those(which func(*Lock) bool) []*Lock {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	var locks []*Lock
	for l := range h.locks {
		if which(l) {
			locks = append(locks, l)
		}
	}
	return locks
}

// bind binds the locks that are not bound to the session. Locks that the server does not have are lost.
func (h *home) bind(ctx context.Context) error {
	h.all.mu.Lock()
	to := &seat{h, h.open}
	h.all.mu.Unlock()
	if to.opening == nil {
		return nil
	}
	// The numbers of the renewals that are not answered yet.
	numbers := map[*Lock]int{}
	defer func() {
		for l, number := range numbers {
			l.cut(number)
		}
	}()
	return h.each(ctx, h.those(func(l *Lock) bool { return l.binding.to == nil }),
		func(l *Lock) []command {
			lease := l.wantedLease()
			h.all.asks(l, to)
			numbers[l] = l.sends(lease)
			return l.target.renew(l.owner, l.token, lease, "SESSIONID", to.id)
		},
		func(l *Lock, replies []any, _ time.Time) error {
			number := numbers[l]
			delete(numbers, l)
			return h.bound(l, replies, to, number)
		})
}

// bound takes the replies to the renewals of a lock. They named the session `to`, and have one number together.
func (h *home) bound(l *Lock, replies []any, to *seat, number int) error {
	err := firstError(replies)
	switch {
	case err == nil && contains(replies, nil):
		// The server does not have the hold of one of the keys.
		l.lose(errNoHold)
		return nil
	case err == nil:
		if contains(replies, int64(0)) {
			// A cap has cut the renewal: the hold is bound, but ends earlier than asked.
			l.refused(number)
		} else {
			l.renewed(number)
		}
		if !h.all.proves(l, to) {
			l.lose(h.all.reason(l))
		}
		return nil
	case err.(ServerError).Code() == "WRONGTYPE":
		// Something else has overwritten the lock.
		l.lose(err)
		return nil
	}
	l.refused(number)
	// The server renews nothing now, or another server has the key: the hold may last until its lease ends.
	h.unbind(l, err.(ServerError), to)
	return err
}

// unbind notes that the session does not keep a lock, and what the answer says about the server and the session.
func (h *home) unbind(l *Lock, answer ServerError, to *seat) {
	h.all.client.router.redirect(l.target.keys[0], answer)
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	l.binding.unbinds()
	if answer.Code() == "NOSESSION" && h.open == to.opening {
		h.lost()
	}
}

func contains(replies []any, reply any) bool {
	for _, each := range replies {
		if each == reply {
			return true
		}
	}
	return false
}

// learn asks for the caps of bound locks whose caps are not known yet. A cap never changes.
func (h *home) learn(ctx context.Context) error {
	return h.each(ctx, h.those(func(l *Lock) bool { return l.binding.to != nil && !l.binding.known }),
		func(l *Lock) []command {
			var commands []command
			for _, key := range l.target.keys {
				commands = append(commands, command{"DLOCK.INFO", key, "OWNER", l.owner})
			}
			return commands
		},
		func(l *Lock, replies []any, sent time.Time) error {
			if left, ok := capOf(replies, l.token); ok {
				h.all.caps(l, endOf(sent, left))
			}
			return nil
		})
}

// capOf returns how long the caps still let the holds with a token last. False: one of the holds is not there.
func capOf(replies []any, token int64) (time.Duration, bool) {
	left := longestLease
	for _, reply := range replies {
		hold := holdOf(reply, token)
		if hold == nil {
			return 0, false
		}
		if ms, ok := field(hold, "cap").(int64); ok {
			left = min(left, time.Duration(ms)*time.Millisecond)
		}
	}
	return left, true
}

// relocate gives locks and unanswered releases whose key is on another server now to the session there.
func (h *home) relocate(ctx context.Context) {
	c := h.all.client
	until := time.Now().Add(step)
	locks := h.those(func(*Lock) bool { return true })
	h.all.mu.Lock()
	debts := h.debts
	h.all.mu.Unlock()
	// The first call asks the servers again where keys are, and later calls use that answer.
	again := true
	moved := func(key string) *pool {
		p, err := c.poolOf(ctx, key, again, until)
		again = false
		if err != nil || p == h.pool {
			return nil
		}
		return p
	}
	for _, l := range locks {
		if p := moved(l.target.keys[0]); p != nil {
			h.give(l, p)
		}
	}
	for _, each := range debts {
		if p := moved(each.key); p != nil {
			h.all.mu.Lock()
			h.debts = remove(h.debts, each.key)
			h.all.mu.Unlock()
			h.all.owe(p, each.key, each.commands)
		}
	}
}

// remove returns the debts without the first one of a key.
func remove(debts []debt, key string) []debt {
	var rest []debt
	removed := false
	for _, each := range debts {
		if each.key == key && !removed {
			removed = true
			continue
		}
		rest = append(rest, each)
	}
	return rest
}

// give makes a lock one of the session on another server, which then binds it.
func (h *home) give(l *Lock, p *pool) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if _, mine := h.locks[l]; !mine {
		return
	}
	l.binding.unbinds()
	delete(h.locks, l)
	to := h.all.at(p)
	to.locks[l] = struct{}{}
	l.home = to
	to.sees(l)
}

// pay sends the debts: the releases that no server has answered yet. A debt is paid when a server has executed it.
func (h *home) pay(ctx context.Context) error {
	for {
		h.all.mu.Lock()
		if len(h.debts) == 0 {
			h.all.mu.Unlock()
			return nil
		}
		first := h.debts[0]
		h.all.mu.Unlock()
		replies, err := h.exchange(ctx, first.commands...)
		if err != nil {
			return err
		}
		if err := h.all.client.repeatable(first.key, replies); err != nil {
			return err
		}
		if err := firstError(replies); writesNothing(err) {
			return err
		}
		h.all.mu.Lock()
		h.debts = remove(h.debts, first.key)
		h.all.mu.Unlock()
	}
}
