package dlock_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	dlock "dlock.example/dlock/clients/go"
)

func TestAnOwnerSaysWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.address())
	host, _ := os.Hostname()
	own := regexp.MustCompile(fmt.Sprintf(`^%.8s.*:%d:\d+:[0-9a-f]{16}$`, regexp.QuoteMeta(host), os.Getpid()))
	longest := strings.Repeat("x", 47)
	seen := map[string]bool{}
	for _, label := range []string{"", "", "web-1:42", "with blank", "é", longest} {
		lock := acquire(t, client, "job", dlock.WithOwner(label))
		holder, err := client.Holder(context.Background(), "job")
		if err != nil || holder.Owner != lock.Owner() {
			t.Fatalf("held by %v: %v", holder, err)
		}
		switch owner := lock.Owner(); {
		case len(owner) > 64 || seen[owner]:
			t.Errorf("the owner is %q", owner)
		case label == "" && !own.MatchString(owner), !strings.HasPrefix(owner, label):
			t.Errorf("the owner of %q is %q", label, owner)
		}
		seen[lock.Owner()] = true
		release(t, lock)
	}
	for _, label := range []string{longest + "x", "line\n"} {
		if _, err := client.Lock(context.Background(), "job", dlock.WithOwner(label)); err == nil {
			t.Errorf("%q is accepted", label)
		}
	}
}
