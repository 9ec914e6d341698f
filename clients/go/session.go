package dlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// sessions has the named sessions of a client: one for each server on which it holds locks.
type sessions struct {
	client *Client
	// How long a session lives after its last heartbeat.
	time time.Duration

	mu    sync.Mutex
	homes map[string]*home
}

// home is the session on one server, with the locks that it keeps. A goroutine sends its heartbeats, from the first lock
// until it has not been used for a while.
type home struct {
	all  *sessions
	pool *pool
	id   string
	// Something is new for the goroutine.
	wake chan struct{}

	// The rest is guarded by all.mu.
	isOpen bool
	// When the last heartbeat that succeeded was sent.
	confirmed time.Time
	// How often it was opened.
	generation int
	// Why it cannot be opened: what the server answered.
	refused error
	// Closed when one of the former changes.
	changed chan struct{}
	locks   map[*Lock]struct{}
	// Acquisitions that are under way.
	users int
	used  time.Time
	// Releases that no server has answered yet: the session would keep these holds.
	debts []debt
}

type debt struct {
	key      string
	commands []command
}

// binding is the session that an acquiring command names.
type binding struct {
	home       *home
	id         string
	generation int
}

// join returns the session on a server, open. Each call needs one of leave.
func (s *sessions) join(ctx context.Context, p *pool, until time.Time) (*binding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at(p)
	h.users++
	for {
		if h.isOpen && time.Since(h.confirmed) < s.time/2 {
			return &binding{h, h.id, h.generation}, nil
		}
		h.refused = nil
		changed := h.changed
		h.nudge()
		s.mu.Unlock()
		err := waitUntil(ctx, changed, until)
		s.mu.Lock()
		if err == nil {
			err = h.refused
		}
		if err != nil {
			h.users--
			return nil, err
		}
	}
}

func waitUntil(ctx context.Context, changed <-chan struct{}, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return errSilent
	case <-ctx.Done():
		return &canceled{context.Cause(ctx)}
	}
}

// leave ends what join began.
func (s *sessions) leave(b *binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.home.users--
	b.home.used = time.Now()
}

// at returns the home at an address, and begins it if there is none. The caller holds s.mu.
func (s *sessions) at(p *pool) *home {
	h := s.homes[p.address]
	if h == nil {
		h = &home{
			all: s, pool: p, id: unique(), wake: make(chan struct{}, 1), changed: make(chan struct{}),
			locks: map[*Lock]struct{}{}, used: time.Now(),
		}
		s.homes[p.address] = h
		s.client.behind(func() { h.run(s.client.ctx) })
	}
	return h
}

// add makes a session keep a lock that was granted under it. Nobody else has the lock yet.
func (s *sessions) add(b *binding, l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := b.home
	h.locks[l] = struct{}{}
	l.home, l.bound = h, h.isOpen && h.generation == b.generation
	if !l.known {
		l.cap = l.until // A lease beyond the cap is refused.
	}
	if l.reach() < s.time || !l.bound {
		h.nudge()
	}
}

// remove makes a session forget a lock. False: none keeps it.
func (s *sessions) remove(l *Lock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.home == nil {
		return false
	}
	delete(l.home.locks, l)
	l.home.used = time.Now()
	return true
}

// removeLost does the same with a lock that the server may still have, and would keep with the session.
func (s *sessions) removeLost(l *Lock) {
	if !s.remove(l) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.home.debts = append(l.home.debts, debt{l.target.keys[0], l.target.release(l.owner, l.token)})
	l.home.nudge()
}

// keeps returns whether the end of the session ends a lock.
func (s *sessions) keeps(l *Lock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.home != nil && l.bound
}

// proves notes that a lock was bound by a command that was sent then.
func (s *sessions) proves(l *Lock, b *binding, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.proved = later(l.proved, sent)
	l.reaches(sent)
	l.bound = l.home == b.home && l.home.isOpen && l.home.generation == b.generation
}

// bindingOf returns the session that keeps a lock now. Nil: none does.
func (s *sessions) bindingOf(l *Lock) *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.home == nil {
		return nil
	}
	return &binding{l.home, l.home.id, l.home.generation}
}

// owe makes a session see to it that releases are answered.
func (s *sessions) owe(p *pool, key string, commands []command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at(p)
	h.debts = append(h.debts, debt{key, commands})
	h.nudge()
}

// ended is told that the server does not know a session.
func (s *sessions) ended(b *binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.home.generation == b.generation {
		b.home.lost()
		b.home.nudge()
	}
}

// until returns until when a lock is held for certain.
func (s *sessions) until(l *Lock) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.certain()
}

// certain is for callers that hold sessions.mu. While the session is open, the server keeps two thirds of the lease ahead.
func (l *Lock) certain() time.Time {
	proved := l.proved
	if l.bound {
		proved = later(proved, l.home.confirmed)
	}
	return earlier(proved.Add(l.reach()), l.cap)
}

// reaches notes that a cap has not cut a renewal that was sent then. The caller holds sessions.mu.
func (l *Lock) reaches(sent time.Time) {
	if !l.known {
		l.cap = later(l.cap, endOf(sent, l.leaseNow()))
	}
}

// caps notes when the cap of a lock ends it.
func (s *sessions) caps(l *Lock, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.cap, l.known = at, true
}

// reach returns for how long a proof is good.
func (l *Lock) reach() time.Duration {
	return min(l.client.sessions.time, l.leaseNow()*2/3)
}

func (h *home) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// lost says that the session has ended. The caller holds all.mu.
func (h *home) lost() {
	h.isOpen = false
	for l := range h.locks {
		l.unbind()
	}
}

// unbind says that later heartbeats prove nothing about a lock. The former ones still do. The caller holds sessions.mu.
func (l *Lock) unbind() {
	if l.bound {
		l.proved = later(l.proved, l.home.confirmed)
	}
	l.bound = false
}

func (h *home) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// run keeps the session open, until it has nothing to do for a while.
func (h *home) run(ctx context.Context) {
	failures := 0
	for {
		if err := h.turn(ctx, failures > 0); err == nil {
			failures = 0
		} else {
			failures++
		}
		h.expire()
		next, done := h.next(failures)
		if done {
			break
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-h.wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
		if ctx.Err() != nil {
			h.end()
			break
		}
	}
	until := time.Now().Add(defaultAnswer)
	h.pool.exchange(h.all.client.last, until, nil, command{"DLOCK.SESSION", h.id, "CLOSE"}) // Otherwise it ends by itself.
}

// end takes it out of the sessions, with the client.
func (h *home) end() {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.retire(ErrClosed)
}

func (h *home) retire(why error) {
	if h.all.homes[h.pool.address] == h {
		delete(h.all.homes, h.pool.address)
	}
	h.isOpen, h.refused = false, why
	h.tell()
}

// next returns the pause until the next turn, or that it has nothing to do any more.
func (h *home) next(failures int) (time.Duration, bool) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if len(h.locks) == 0 && h.users == 0 && len(h.debts) == 0 && time.Since(h.used) > h.all.time {
		h.retire(nil)
		return 0, true
	}
	beat := h.interval()
	at := h.confirmed.Add(beat)
	if failures > 0 {
		at = time.Now().Add(min(beat/4, 25*time.Millisecond<<min(failures, 4)))
	}
	for l := range h.locks {
		at = earlier(at, l.certain())
	}
	return max(0, time.Until(at)), false
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
	h.expire()
	until := h.limit()
	if failed {
		h.relocate(ctx, until)
	}
	check, err := h.beat(ctx, until)
	if err != nil {
		return err
	}
	if err := h.bind(ctx, h.limit(), check); err != nil {
		return err
	}
	if err := h.learn(ctx, h.limit()); err != nil {
		return err
	}
	return h.pay(ctx)
}

// learn asks for the caps of locks that have been held for a heartbeat. A cap never changes.
func (h *home) learn(ctx context.Context, until time.Time) error {
	h.all.mu.Lock()
	var locks []*Lock
	for l := range h.locks {
		if l.bound && !l.known {
			locks = append(locks, l)
		}
	}
	h.all.mu.Unlock()
	for len(locks) > 0 {
		some := locks[:min(bindAtOnce, len(locks))]
		locks = locks[len(some):]
		var commands []command
		for _, l := range some {
			for _, key := range l.target.keys {
				commands = append(commands, command{"DLOCK.INFO", key, "OWNER", l.owner})
			}
		}
		sent := time.Now()
		replies, err := h.pool.exchange(ctx, until, nil, commands...)
		if err != nil {
			h.pool.distrust()
			return err
		}
		for _, l := range some {
			mine := replies[:len(l.target.keys)]
			replies = replies[len(mine):]
			if left, ok := capOf(mine, l.token); ok {
				h.all.caps(l, endOf(sent, left))
			}
		}
	}
	return nil
}

// capOf returns how long the holds with a token may still last. False: one of them is not there.
func capOf(replies []any, token int64) (time.Duration, bool) {
	left := longestLease
	for _, reply := range replies {
		holds, _ := field(reply, "holds").([]any)
		found := false
		for _, hold := range holds {
			if field(hold, "token") != token {
				continue
			}
			found = true
			if ms, ok := field(hold, "cap").(int64); ok {
				left = min(left, time.Duration(ms)*time.Millisecond)
			}
		}
		if !found {
			return 0, false
		}
	}
	return left, true
}

// limit returns until when an exchange may take, so that no lock is held for longer than it is certain.
func (h *home) limit() time.Time {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	until := time.Now().Add(step)
	for l := range h.locks {
		until = earlier(until, l.certain())
	}
	return until
}

// beat returns whether locks have to be checked: the server has fewer than there should be.
func (h *home) beat(ctx context.Context, until time.Time) (bool, error) {
	h.all.mu.Lock()
	opens := !h.isOpen
	due := opens || time.Since(h.confirmed) >= h.interval()
	expected := 0
	for l := range h.locks {
		if l.bound {
			expected += len(l.target.keys)
		}
	}
	h.all.mu.Unlock()
	if !due {
		return false, nil
	}
	how := "XX"
	if opens {
		how = "NX"
	}
	sent := time.Now()
	replies, err := h.pool.exchange(ctx, until, nil, command{"DLOCK.SESSION", h.id, "PX", millis(h.all.time), how})
	if err != nil {
		h.pool.distrust()
		if isAnswer(err) { // to the login
			h.all.mu.Lock()
			defer h.all.mu.Unlock()
			h.refused = err
			h.tell()
		}
		return false, err
	}
	return h.heard(replies[0], opens, sent, expected)
}

func (h *home) heard(reply any, opens bool, sent time.Time, expected int) (bool, error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	switch answer := reply.(type) {
	case int64:
		h.all.client.hears()
		h.isOpen, h.confirmed, h.refused = true, sent, nil
		if opens {
			h.generation++
		}
		h.tell()
		return !opens && answer < int64(expected), nil
	case nil:
		// It was opened before, and that reply was lost. Another id has no such doubts.
		h.id = unique()
		return false, errors.New("the session is open already")
	case ServerError:
		if answer.Code() == "NOSESSION" {
			h.lost()
			h.nudge()
			return false, answer
		}
		if !answer.mayRepeat() {
			h.refused = answer
			h.tell()
		}
		return false, answer
	}
	return false, errProtocol
}

// The most locks that are bound in one exchange.
const bindAtOnce = 100

// bind binds the locks that are not bound, or all of them. Those that the server does not have are lost.
func (h *home) bind(ctx context.Context, until time.Time, all bool) error {
	h.all.mu.Lock()
	var locks []*Lock
	for l := range h.locks {
		if all || !l.bound {
			locks = append(locks, l)
		}
	}
	generation := h.generation
	h.all.mu.Unlock()
	for len(locks) > 0 {
		some := locks[:min(bindAtOnce, len(locks))]
		locks = locks[len(some):]
		var commands []command
		for _, l := range some {
			commands = append(commands, l.target.renew(l.owner, l.token, l.leaseNow(), "SESSIONID", h.id)...)
		}
		sent := time.Now()
		replies, err := h.pool.exchange(ctx, until, nil, commands...)
		if err != nil {
			h.pool.distrust()
			return err
		}
		if err := h.bound(some, replies, generation, sent); err != nil {
			return err
		}
	}
	return nil
}

// bound takes the replies to the renewals of locks.
func (h *home) bound(locks []*Lock, replies []any, generation int, sent time.Time) error {
	var failed error
	for _, l := range locks {
		mine := replies[:len(l.target.keys)]
		replies = replies[len(mine):]
		err := firstError(mine)
		switch {
		case err == nil && contains(mine, nil):
			l.lose(errors.New("the server has no such hold"))
		case err == nil:
			h.all.mu.Lock()
			l.bound, l.proved = h.isOpen && h.generation == generation, sent
			if !contains(mine, int64(0)) {
				l.reaches(sent)
			}
			h.all.mu.Unlock()
		case isAnswer(err) && err.(ServerError).Code() != "NOSESSION":
			l.lose(err)
		default:
			h.unbind(l, err.(ServerError), generation)
			failed = err
		}
	}
	return failed
}

func (h *home) unbind(l *Lock, answer ServerError, generation int) {
	h.all.client.router.redirect(l.target.keys[0], answer)
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	l.unbind()
	if answer.Code() == "NOSESSION" && h.generation == generation {
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

// relocate gives locks whose key is on another server now to the session there, which binds them.
func (h *home) relocate(ctx context.Context, until time.Time) {
	c := h.all.client
	h.all.mu.Lock()
	locks := make([]*Lock, 0, len(h.locks))
	for l := range h.locks {
		locks = append(locks, l)
	}
	debts := h.debts
	h.all.mu.Unlock()
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

func (h *home) give(l *Lock, p *pool) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if _, mine := h.locks[l]; !mine {
		return
	}
	l.unbind()
	delete(h.locks, l)
	to := h.all.at(p)
	to.locks[l] = struct{}{}
	l.home = to
	to.nudge()
}

// pay sends releases that were not answered.
func (h *home) pay(ctx context.Context) error {
	for {
		h.all.mu.Lock()
		if len(h.debts) == 0 {
			h.all.mu.Unlock()
			return nil
		}
		first := h.debts[0]
		h.all.mu.Unlock()
		replies, err := h.pool.exchange(ctx, h.limit(), nil, first.commands...)
		if err != nil {
			h.pool.distrust()
			return err
		}
		if err := h.all.client.repeatable(first.key, replies); err != nil {
			return err
		}
		h.all.mu.Lock()
		h.debts = remove(h.debts, first.key)
		h.all.mu.Unlock()
	}
}

// expire says which locks are lost because no heartbeat succeeded in time.
func (h *home) expire() {
	h.all.mu.Lock()
	var over []*Lock
	now := time.Now()
	for l := range h.locks {
		if !now.Before(l.certain()) {
			over = append(over, l)
		}
	}
	h.all.mu.Unlock()
	for _, l := range over {
		l.lose(errors.New("no heartbeat of its session has succeeded in time"))
	}
}
