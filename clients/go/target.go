package dlock

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// target is what is locked: one key or several, and how.
type target struct {
	name string // for messages
	keys []string
	// The words of the acquiring command before the owner, and after it.
	before, after command
	// The words of a release that name the entries of one acquisition. Empty: the one entry that it has.
	entries command
}

func one(verb, key string) target {
	return target{name: key, keys: []string{key}, before: command{verb, key}}
}

func all(keys []string) target {
	before := append(command{"DLOCK.MACQUIRE", strconv.Itoa(len(keys))}, keys...)
	return target{name: strings.Join(keys, " "), keys: keys, before: before}
}

func (t target) check() error {
	if len(t.keys) == 0 {
		return errors.New("dlock: no lock is named")
	}
	for _, key := range t.keys {
		if key == "" {
			return errors.New("dlock: the name of a lock is empty")
		}
	}
	return nil
}

func (t target) acquire(owner string, options ...string) command {
	words := make(command, 0, len(t.before)+len(t.after)+len(options)+1)
	words = append(append(words, t.before...), owner)
	return append(append(words, t.after...), options...)
}

// release returns the commands that release one acquisition, one for each key.
func (t target) release(owner string, token int64) []command {
	words := append(append(command{}, t.entries...), "TOKEN", strconv.FormatInt(token, 10))
	return t.each("DLOCK.RELEASE", owner, words...)
}

// releaseAll returns the commands that release all holds of an owner, when their token is not known.
func (t target) releaseAll(owner string) []command {
	return t.each("DLOCK.RELEASE", owner, "ALL")
}

func (t target) renew(owner string, token int64, lease time.Duration, more ...string) []command {
	words := append(command{"PX", millis(lease), "TOKEN", strconv.FormatInt(token, 10)}, more...)
	return t.each("DLOCK.RENEW", owner, words...)
}

// look returns the commands that ask how much time is left of a hold.
func (t target) look(token int64) []command {
	commands := make([]command, len(t.keys))
	for i, key := range t.keys {
		commands[i] = command{"DLOCK.CHECK", key, strconv.FormatInt(token, 10)}
	}
	return commands
}

// leastOf returns the shortest time in the replies to `look`. False: a hold does not exist.
func leastOf(replies []any) (time.Duration, bool) {
	left := longestLease
	for _, reply := range replies {
		ms, ok := reply.(int64)
		if !ok {
			return 0, false
		}
		left = min(left, time.Duration(ms)*time.Millisecond)
	}
	return left, true
}

func (t target) each(verb, owner string, words ...string) []command {
	commands := make([]command, len(t.keys))
	for i, key := range t.keys {
		commands[i] = append(command{verb, key, owner}, words...)
	}
	return commands
}

// millis rounds up, since the server takes a timeout of 0 for no limit, and refuses a lease of 0.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
