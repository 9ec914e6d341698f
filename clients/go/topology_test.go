package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
	"dlock.example/dlock/clients/go/internal/ports"
)

func startSentinel(t testing.TB, primary *server) string {
	t.Helper()
	port, home := ports.Free(), t.TempDir()
	file := filepath.Join(home, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", port, home, primary.port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process := exec.Command(os.Getenv("DLOCK_SERVER"), file, "--sentinel")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
	})
	s := &server{t: t, port: port}
	eventually(t, "the Sentinel knows that the replica is fit", func() bool {
		reply, err := s.try("SENTINEL", "REPLICAS", "main")
		return err == nil && strings.Contains(reply, "master-link-status ok")
	})
	return s.address()
}

func TestSentinelLeadsToThePrimary(t *testing.T) {
	t.Parallel()
	primary := startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1", fmt.Sprint(primary.port))
	eventually(t, "the replica is in sync", func() bool { return replica.info("replication", "master_link_status") == "up" })
	sentinel := startSentinel(t, primary)
	// The first address does not answer.
	client, err := dlock.NewSentinel("main", []string{"127.0.0.1:1", sentinel}, dlock.WithDefaults(dlock.WithLease(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lock := acquire(t, client, "job")
	eventually(t, "the replica has the lock", func() bool { return replica.call("EXISTS", "job") == ":1" })
	next := make(chan error)
	go func() {
		lock, err := client.Lock(context.Background(), "job")
		if err == nil {
			err = unlock(lock)
		}
		next <- err
	}()
	primary.waiters(1)
	primary.stop()
	replica.waiters(1)
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	replica.isFree("job")
}

func TestSentinelsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	client, err := dlock.NewSentinel("main", []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.Lock(ctx, "job"); !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), "main") {
		t.Fatalf("the error is %v", err)
	}
}

// startCluster starts two nodes, each with half of the slots.
func startCluster(t testing.TB) [2]*server {
	t.Helper()
	var nodes [2]*server
	for i := range nodes {
		nodes[i] = startServer(t, "--cluster-enabled", "yes")
	}
	nodes[0].call("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
	nodes[1].call("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	// With the same epoch, the nodes would first have to agree on others.
	nodes[1].call("CLUSTER", "SET-CONFIG-EPOCH", "2")
	nodes[0].call("CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(nodes[1].port))
	for _, node := range nodes {
		eventually(t, "both nodes know the owners of all slots", func() bool {
			return strings.Contains(node.call("CLUSTER", "INFO"), "cluster_state:ok") &&
				strings.Contains(node.call("CLUSTER", "INFO"), "cluster_slots_assigned:16384")
		})
	}
	return nodes
}

// The client learned before the failover which node is the primary.
func TestASessionBeginsOnTheNextPrimary(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	replica := startServer(t, "--cluster-enabled", "yes")
	replica.call("CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(nodes[0].port))
	eventually(t, "the node knows its primary", func() bool {
		said, _ := replica.try("CLUSTER", "REPLICATE", nodes[0].call("CLUSTER", "MYID"))
		return said == "+OK"
	})
	eventually(t, "the replica is in sync", func() bool { return replica.info("replication", "master_link_status") == "up" })
	client, err := dlock.NewCluster([]string{nodes[1].address()}, dlock.WithSession(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// The client learns which nodes there are, and opens no session. The slot of {b}, 3300, is on the first node.
	release(t, acquire(t, client, "{b}", dlock.WithoutRenewal()))
	eventually(t, "the former primary is a replica", func() bool {
		// The cluster undoes a takeover whose epoch another node has already. Then the takeover is repeated.
		if replica.info("replication", "role") == "slave" {
			replica.call("CLUSTER", "FAILOVER", "TAKEOVER")
		}
		return nodes[0].info("replication", "role") == "slave"
	})
	release(t, acquire(t, client, "{b}"))
}

func TestALockGoesWhereItsSlotGoes(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	client, err := dlock.NewCluster([]string{"127.0.0.1:1", nodes[0].address()}, dlock.WithSession(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var locks []*dlock.Lock
	for i := range 20 {
		locks = append(locks, acquire(t, client, fmt.Sprintf("job:%d", i), dlock.WithLease(time.Minute)))
	}
	for _, node := range nodes {
		if node.info("dlock", "dlock_named_sessions") != "1" {
			t.Fatal("a node has no session")
		}
	}
	lock := acquire(t, client, "{a}", dlock.WithLease(time.Minute)) // slot 15495
	from, to := nodes[1], nodes[0]
	slot := strings.TrimPrefix(from.call("CLUSTER", "KEYSLOT", "{a}"), ":")
	fromID, toID := from.call("CLUSTER", "MYID"), to.call("CLUSTER", "MYID")
	to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.call("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	if reply := from.call("MIGRATE", "127.0.0.1", fmt.Sprint(to.port), "{a}", "0", "5000"); reply != "+OK" {
		t.Fatal(reply)
	}
	to.call("CLUSTER", "SETSLOT", slot, "NODE", toID)
	from.call("CLUSTER", "SETSLOT", slot, "NODE", toID)
	eventually(t, "the lock is bound on the new node", func() bool {
		info := to.call("DLOCK.INFO", "{a}", "FULL")
		return strings.Contains(info, " session ") && !strings.Contains(info, " session $-1")
	})
	if lock.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	isHeld(t, client, "{a}")
	for _, each := range append(locks, lock) {
		release(t, each)
	}
	both, err := client.LockAll(context.Background(), []string{"{a}:1", "{a}:2"})
	if err != nil {
		t.Fatal(err)
	}
	release(t, both)
	var answer dlock.ServerError
	if _, err := client.LockAll(context.Background(), []string{"a", "b"}); !errors.As(err, &answer) || answer.Code() != "CROSSSLOT" {
		t.Fatalf("the error is %v", err)
	}
}
