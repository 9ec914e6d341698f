package dlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// The proxy withholds a connection from its WAIT on. The withheld bytes arrive when the client's repeat has the lock.
func TestARepeatAfterASilenceOfReplicasKeepsTheLock(t *testing.T) {
	t.Parallel()
	const lease, longer = 20 * time.Second, time.Minute
	s := startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1", fmt.Sprint(s.port))
	eventually(t, "the replica is in sync", func() bool { return replica.info("replication", "master_link_status") == "up" })
	p := startProxy(t, s.address())
	client, o := newClient(t, p.address()), newOther(s)
	for _, waits := range []bool{false, true} { // whether the lock is held at first
		if waits {
			o.holds()
			go func() {
				s.waiters(1)
				o.releases()
			}()
		}
		arrive := p.keepFrom("WAIT")
		lock := acquire(t, client, "job", dlock.WithLease(lease), dlock.WithReplicas(1, 2*time.Second), dlock.WithoutRenewal())
		if err := lock.Extend(context.Background(), longer); err != nil {
			t.Fatal(err)
		}
		arrive()
		time.Sleep(300 * time.Millisecond) // the server executes what has arrived
		var left int64
		fmt.Sscanf(s.call("DLOCK.CHECK", "job", fmt.Sprint(lock.Token())), ":%d", &left)
		if sure := lock.Remaining(); left == 0 || sure > time.Duration(left)*time.Millisecond {
			t.Fatalf("waits: %v: %v is left for the client, %d ms on the server", waits, sure, left)
		}
		release(t, lock)
	}
}
