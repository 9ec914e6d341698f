package dlock_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// TestPermissions logs in as the user of docs/permissions.md.
func TestPermissions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("\n\\| Go \\| – \\| `(.*)` \\|\n").FindSubmatch(page)
	if row == nil {
		t.Fatal("the page has no row, or asks for more")
	}
	words := []string{"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~job:*"}
	for _, line := range regexp.MustCompile(`> ACL SETUSER worker (.*)`).FindAllStringSubmatch(string(page), -1) {
		words = append(words, regexp.MustCompile(`\+\S+`).FindAllString(line[1], -1)...)
	}
	words = append(words, strings.ReplaceAll(string(row[1]), `\|`, "|"))
	s := startServer(t)
	s.call(words...)
	client := newClient(t, fmt.Sprintf("redis://worker:secret@%s", s.address()))
	ctx := context.Background()
	held := acquire(t, client, "job:1")
	done := make(chan error)
	go func() {
		lock, err := client.Lock(ctx, "job:1")
		if err == nil {
			err = lock.Unlock(ctx)
		}
		done <- err
	}()
	s.waiters(1)
	if err := held.Extend(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	release(t, held)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, take := range []func() (*dlock.Lock, error){
		func() (*dlock.Lock, error) { return client.TryLock(ctx, "job:2", dlock.WithoutRenewal()) },
		func() (*dlock.Lock, error) { return client.RLock(ctx, "job:2") },
		func() (*dlock.Lock, error) { return client.WLock(ctx, "job:2") },
		func() (*dlock.Lock, error) { return client.LockAll(ctx, []string{"job:2", "job:3"}) },
		func() (*dlock.Lock, error) { return client.Semaphore("job:4", 2).Acquire(ctx) },
	} {
		lock, err := take()
		if err != nil {
			t.Fatal(err)
		}
		release(t, lock)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	for holder, err := range client.Watch(watching, "job:1") {
		if holder != nil || err != nil {
			t.Fatalf("%v, %v", holder, err)
		}
		stop()
	}
	if denied := s.call("ACL", "LOG"); denied != "" {
		t.Fatalf("denied: %s", denied)
	}
}

// A user that may not look at locks acquires them nevertheless, also after a long wait.
func TestAUserThatMayNotLookAcquires(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.call("ACL", "SETUSER", "worker", "on", ">secret", "~job", "+dlock.acquire", "+dlock.release", "+dlock.renew", "+dlock.session")
	client := newClient(t, fmt.Sprintf("redis://worker:secret@%s", s.address()))
	o := newOther(s)
	o.holds()
	granted := make(chan *dlock.Lock, 1)
	go func() {
		lock, err := client.Lock(context.Background(), "job", dlock.WithLease(900*time.Millisecond))
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	s.waiters(1)
	time.Sleep(500 * time.Millisecond)
	o.releases()
	lock := <-granted
	if lock == nil {
		t.FailNow()
	}
	if left := lock.Remaining(); left <= 0 || left > 900*time.Millisecond {
		t.Errorf("held for %v", left)
	}
	release(t, lock)
}
