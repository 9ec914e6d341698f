// Package dlock has distributed locks of the dlock module for Redis and Valkey.
//
//	client, err := dlock.New("redis://127.0.0.1:6379")
//	...
//	lock, err := client.Lock(ctx, "job:1") // waits in the queue of the server
//	...
//	defer lock.Unlock(ctx)
//	work(lock.Context(), lock.Token()) // the context is canceled when the lock is lost
//
// # Waiting
//
// [Client.Lock] waits in the queue of the server, first come, first served. It ends with its context: at most 250 ms
// after the deadline, and within 100 ms if the context is canceled. It leaves nothing behind: a goroutine of the client
// leaves the queue, and releases what may have been granted. Without a deadline, it waits for as long as a server
// answers, and looks for one for 30 s if none does ([WithOutage]).
//
// # Being lost
//
// A named session on each server keeps all locks of a client. A lock is lost if the server says so, or if no heartbeat
// of its session has succeeded for too long ([WithSession]), counted from when it was sent, by a clock that only goes
// forward. Then [Lock.Context] is canceled. Nothing of this stops a program that hangs: give the
// fencing token ([Lock.Token]) to the resource, and let it reject lower tokens.
//
// # Goroutines
//
// A [Client] may be used by many goroutines at once. Each acquisition is an owner of its own, so a lock excludes the
// goroutines of one program as well. No goroutine outlives [Client.Close], except one in a call of another client
// ([Over]) that cannot be interrupted.
package dlock
