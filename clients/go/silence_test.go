package dlock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	dlock "dlock.example/dlock/clients/go"
)

// aGrant is what the reply to a grant begins with: a token is a time in microseconds.
var aGrant = ":" + strconv.FormatInt(time.Now().UnixMicro(), 10)[:2]

func TestSilenceAfterTheGrantDoesNotEndTheWait(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		o.holds()
		granted := make(chan *dlock.Lock, 1)
		go func() {
			lock, err := client.Lock(context.Background(), "job", dlock.WithLease(3*time.Second), dlock.WithWait(patience))
			if err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
		s.waiters(1)
		time.Sleep(1500 * time.Millisecond) // More than a third of the lease: the grant has to be confirmed.
		p.fallsSilent(aGrant, 2500*time.Millisecond)
		o.releases()
		lock := <-granted
		if lock == nil {
			t.FailNow()
		}
		if lock.Remaining() <= 0 {
			t.Errorf("lost: %v", context.Cause(lock.Context()))
		}
		release(t, lock)
		s.isFree("job")
	})
}

// A hold ends with its session, even if it was granted shortly before: the time counts from the last heartbeat, not
// from the grant.
func TestALockIsNotBelievedLongerThanItsSession(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.address())
	const session = 3 * time.Second
	client := newClient(t, p.address(), dlock.WithSession(session))
	acquire(t, client, "first", dlock.WithLease(forLong))
	time.Sleep(session/3 - 200*time.Millisecond) // The next heartbeat is about to be sent.
	lock := acquire(t, client, "job", dlock.WithLease(forLong))
	p.silence(patience)
	defer p.silence(0)
	newOther(s).call("DLOCK.ACQUIRE", "job", "next", "PX", "60000", "BLOCK", "0")
	watch := startWatch()
	if left := lock.Remaining(); left > 0 {
		t.Errorf("believed for %v more, while another one has it", left)
	}
	<-lock.Context().Done()
	watch.within(t, 50*time.Millisecond, "the news, after another one has it")
}

// The answer to a repeat is the grant of the copy before it, whose lease began earlier.
func TestAGrantToARepeatCountsFromTheFirstCopy(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, _ *other) {
		release(t, acquire(t, client, "job"))
		p.loses(aGrant, 800*time.Millisecond)
		lock := acquire(t, client, "job", dlock.WithLease(6*time.Second), dlock.WithoutRenewal())
		left := lock.Remaining()
		ttl, err := strconv.Atoi(s.call("PTTL", "job")[1:])
		if err != nil || left <= 0 || left > time.Duration(ttl)*time.Millisecond+200*time.Millisecond {
			t.Errorf("believed for %v, of %d ms: %v", left, ttl, err)
		}
		release(t, lock)
	})
}

// A busy machine, or server, is late with the end of a wait. This is no outage: the server has said no.
func TestAWaitThatWasRefusedEndsWithErrNotGrantedDuringASilence(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.address())
	client := newClient(t, p.address())
	newOther(s).holds()
	ended := make(chan error, 1)
	go func() {
		_, err := client.Lock(context.Background(), "job", dlock.WithWait(3*time.Second))
		ended <- err
	}()
	s.waiters(1)
	p.silence(4 * time.Second)
	if err := <-ended; !errors.Is(err, dlock.ErrNotGranted) {
		t.Errorf("the error is %v", err)
	}
}

// The limit passes while the client confirms a grant. The client may then return the grant, but does not believe it for
// longer than the lease and the session certainly last.
func TestAGrantThatIsNotConfirmedIsBelievedNoLongerThanItsSession(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.address())
	client, o := newClient(t, p.address(), dlock.WithSession(1500*time.Millisecond)), newOther(s)
	o.holds()
	type outcome struct {
		lock *dlock.Lock
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		lock, err := client.Lock(context.Background(), "job", dlock.WithLease(9*time.Second), dlock.WithWait(6*time.Second))
		ended <- outcome{lock, err}
	}()
	s.waiters(1)
	time.Sleep(3300 * time.Millisecond) // More than a third of the lease.
	p.fallsSilent(aGrant, patience)
	defer p.silence(0)
	o.releases()
	got := <-ended
	if got.err != nil {
		if !errors.Is(got.err, dlock.ErrUnreachable) {
			t.Errorf("the error is %v", got.err)
		}
		return
	}
	if left := got.lock.Remaining(); left <= 0 || left > 1500*time.Millisecond {
		t.Errorf("believed for %v", left)
	}
	o.call("DLOCK.ACQUIRE", "job", "next", "PX", "60000", "BLOCK", "0")
	if left := got.lock.Remaining(); left > 0 {
		t.Errorf("believed for %v more, while another one has it", left)
	}
}

// A grant comes just before the client stops reading, and the question that confirms it gets no answer. The wait and
// the confirmation share one limit.
func TestAGrantAtTheLimitIsNotConfirmedForLong(t *testing.T) {
	eachKind(t, func(t *testing.T, s *server, p *proxy, client *dlock.Client, o *other) {
		o.holds()
		const limit, reply = 1200 * time.Millisecond, 400 * time.Millisecond
		release(t, acquire(t, client, "other")) // Opens the session.
		watch := startWatch()
		ended := make(chan struct{})
		go func() {
			lock, err := client.Lock(context.Background(), "job", dlock.WithLease(900*time.Millisecond), dlock.WithWait(limit))
			watch.within(t, limit+250*time.Millisecond, "a wait")
			if err == nil {
				lock.Unlock(context.Background())
			}
			close(ended)
		}()
		s.waiters(1)
		p.repliesTake.Store(int64(reply))
		p.fallsSilent(aGrant, patience)
		defer p.silence(0)
		// The reply with the grant arrives 130 ms after the limit: the client still reads for 150 ms.
		time.Sleep(time.Until(watch.began.Add(limit + 130*time.Millisecond - reply)))
		o.releases()
		<-ended
	})
}
