package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// startSilent starts a server that accepts connections and never answers. It returns the address.
func startSilent(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(io.Discard, c)
			}()
		}
	}()
	return listener.Addr().String()
}

// routed returns the two kinds of client that first ask where a lock is. They ask at these addresses.
func routed(t *testing.T, addresses ...string) map[string]*dlock.Client {
	t.Helper()
	sentinel, err := dlock.NewSentinel("main", addresses)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := dlock.NewCluster(addresses)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sentinel.Close(); cluster.Close() })
	return map[string]*dlock.Client{"Sentinel": sentinel, "cluster": cluster}
}

// A single acquisition asks where the lock is, and the others wait for the answer. Each still has its own limit.
func TestACrowdWhoseSentinelsHangKeepsItsLimits(t *testing.T) {
	t.Parallel()
	for name, client := range routed(t, startSilent(t), startSilent(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient, giveUp := context.WithCancel(context.Background())
			defer giveUp()
			for range 5 {
				go client.Lock(patient, "job")
			}
			endsWithin := func(limit time.Duration, end func(context.Context) context.Context, wanted error) {
				ended := make(chan error)
				watch := startWatch()
				for range 30 {
					go func() {
						_, err := client.Lock(end(patient), "job")
						ended <- err
					}()
				}
				for range 30 {
					if err := <-ended; !errors.Is(err, wanted) {
						t.Errorf("the error is %v", err)
					}
				}
				watch.within(t, limit, "the last acquisition")
			}
			const limit = 300 * time.Millisecond
			endsWithin(limit+250*time.Millisecond, func(ctx context.Context) context.Context {
				ctx, cancel := context.WithTimeout(ctx, limit)
				t.Cleanup(cancel)
				return ctx
			}, dlock.ErrUnreachable)
			endsWithin(limit+100*time.Millisecond, func(ctx context.Context) context.Context {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(limit, cancel)
				return ctx
			}, context.Canceled)
		})
	}
}

func TestTheOnlySentinelThatAnswersIsFound(t *testing.T) {
	t.Parallel()
	primary := startServer(t)
	startServer(t, "--replicaof", "127.0.0.1", fmt.Sprint(primary.port))
	silent := []string{startSilent(t), startSilent(t), startSilent(t)}
	client := routed(t, append(silent, startSentinel(t, primary))...)["Sentinel"]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, err := client.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	release(t, lock)
}
