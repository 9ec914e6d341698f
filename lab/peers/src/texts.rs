//! What the page says besides its figures. Lines are at most 120 columns long: they are printed as they are.

use crate::systems::{Kept, Made};

pub const HEAD: &str = "\
# dlock beside etcd, ZooKeeper, PostgreSQL and Redlock

This page compares locks of different systems: how long a lock takes, how fast it passes to the next client, how many
a second, and what happens when a process dies. All systems ran on one machine, in one run, each with the lock recipe
of its own documentation. `make bench-peers` measures them and writes this page from the figures in
[`lab/peers/figures/peers.json`](../lab/peers/figures/peers.json). No figure is entered by hand.

Each figure is the median of the rounds, followed by the least and the most. In each round, every system is started
anew and measured, one after the other. Servers run on one core and clients on another. All nodes of a cluster share
the core and the disk. So the figures say what a lock *costs*; they do not contain the network between three machines.
";

pub const SYSTEMS: &str = "\
## What is compared

A system is compared with systems that keep a grant as safely. There are four classes: a grant is in the memory of one
server, on its disk (synced before the answer), in the memory of several servers, or on the disks of a majority.

The lease, session timeout or TTL is 4 seconds everywhere. This is the shortest session that ZooKeeper grants with its
usual `tickTime`. Settings that the table does not name are the defaults of the package.

The clients are crates, each with a connection and a session for every client, all in one thread. The recipe of each
system is the one of its documentation, cited by number. A server of Redlock or of dlock's quorum has 50 ms [1] or
100 ms ([its default](quorum.md#settings)) to answer, except where more than 50 clients share their core: then they
wait for each other rather than for a server, and it has a second.

All parts of a round use the same servers, with two exceptions. Servers of which one is going to be killed are started
for this. And etcd is started anew after each part in which many clients wait: such a part ends with many calls of
`Lock` that are canceled at once, and then etcd's lock service may grant no lock any more. This is known to its
maintainers ([13336](https://github.com/etcd-io/etcd/issues/13336),
[18879](https://github.com/etcd-io/etcd/issues/18879)), and it happened here, too.
";

pub fn settings(made: Made, kept: Kept) -> &'static str {
    match (made, kept) {
        (Made::Dlock, Kept::Memory) => {
            "`appendonly no`; [`DLOCK.ACQUIRE … PX 4000 BLOCK 0 SESSION`](commands/acquire.md)"
        }
        (Made::Dlock, _) => "`appendonly yes`, `appendfsync always`; the same commands",
        (Made::DlockReplica, _) => "one replica; [`WAIT 1`](replication.md) follows each grant and each release",
        (Made::DlockQuorum, Kept::Majority) => "`appendonly no`; the [quorum](quorum.md) of the crate dlock-client",
        (Made::DlockQuorum, _) => "`appendonly yes`, `appendfsync always`; the same quorum",
        (Made::Redlock, Kept::Memory) => "`appendonly no`; a script releases; the next try after 0 to 200 ms [1]",
        (Made::Redlock, Kept::Majority) => "`appendonly no`; all servers are asked at once; the same tries [1]",
        (Made::Redlock, _) => "`appendonly yes`, `appendfsync always` [1]",
        (Made::Etcd, _) => "a lease that is kept alive, and the `Lock` RPC [2]; flags of the clustering guide [3]",
        (Made::ZooKeeper, _) => {
            "ephemeral sequential nodes and a watch on the predecessor [4]; `tickTime=2000`, `initLimit=10`, \
             `syncLimit=5`, `maxClientCnxns=0` [5]; `-Xmx1000m` [6]"
        }
        (Made::Postgres, _) => {
            "`pg_advisory_lock` on a connection, prepared [7]; `max_connections=1100` [8], `deadlock_timeout=2min` [9]"
        }
    }
}

pub const FAILED: &str = "\
**Not everything could be measured.** A part that fails is tried once more, on servers that are started for it. One
that failed again has no figures for that round; a cell says \"failed\" if no round has any:
";

pub const TARGETS: &str = "\
## Targets

dlock is meant to take at most half of the time that the best peer of its class takes, and to do 1.5 times as much.
";

pub const MISSED: &str = "\
### Where the time goes

For each missed target, the table below shows what one pair or one hand-off takes, from the rounds that measured it:
the time from one to the next, and the CPU time that the kernel counted for the clients' process and for all processes
of the servers. *Limit* names the core that is busy for at least 90 % of the time. With one client, and mostly in a
hand-off, both sides work in turn: what is left of the time goes into waking the other side, into the disk, and into
the replica. *Ratio at best* is an estimate: the ratio of the rates if dlock's servers took no CPU and all else
stayed. If it misses the target, too, then no faster server reaches the target with these clients on this machine.
The times are means, where the target compares medians. Below the table, each reason is put in words; where both cores
work at once, its parts add up to more than the time.
";

pub const DESIGN: &str = "\
The designs suggest causes for some of this. They are not derived from the figures:

- A pair is two round trips for dlock on one server, for PostgreSQL and for `SET NX PX` alike. A client that waits for
  each answer therefore measures sockets and its own runtime as well.
- Redlock asks all servers once for an acquire. dlock's quorum makes three round trips: it waits in the queue of its
  first server, asks the others, and confirms the majority. The second and the third are what
  [its safety](quorum.md#why-it-is-safe) rests on.
- With a disk, each write waits for a sync, which takes as long for everyone. A quorum syncs the grant, its confirmation
  and the release.
";

pub const ALONE: &str = "\
## One client alone

The time of one acquire and release, of a lock that nobody else wants. CPU and bytes (`/proc/PID/io`) are those of one
pair, for all servers together and for the client. The bytes are whole pages of the files that were written; the file
system's journal is not in it.
";

pub const PAIRS: &str = "\
## Pairs a second

Pairs of acquire and release a second, each client with a connection and a lock of its own. The last columns are the
CPU of one pair with 64 clients. All servers share a core and all clients share another, so a million divided by the
larger of the two is the most that the rate can be.
";

pub const HAND_OFF: &str = "\
## Hand-off

The time from the moment at which the holder sends its release to the moment at which the next client has the lock,
with 2, 64 and 512 waiting clients. All of them want one lock, release it at once, and queue again.

\"Out of order\" looks at 64 clients that came one after the other, 6 ms apart. It is the share of pairs of clients in
which the later one got the lock first: 0 is the order of the requests, 0.5 is chance.
";

pub const WAITERS: &str = "\
## A thousand clients wait

The table shows the cost of 1,000 clients that wait for one lock, while nothing happens, for all servers together. The
CPU goes into what keeps sessions and leases alive, and into polling. The packets are all that the loopback interface
carried, between clients and servers and between servers. The memory is that of the servers after 1,000
clients have connected and queued, less that before, per client (shared pages are divided among the processes). A Java
heap grows until it is collected, so ZooKeeper's memory says little; negative memory means that some was given back.

A connection of PostgreSQL that has waited for `deadlock_timeout` looks for a deadlock, among all who wait for the same
lock. With the default of one second, a thousand of them kept the core busy for over 45 seconds, and this part was not
done in time. So this timeout is longer than any wait here, as the manual advises [9].
";

pub const HOLDER: &str = "\
## The holder dies

The holder is a process. *Killed*: `kill -9`, and the time until the next client has the lock. *Stopped*: `SIGSTOP`,
which looks like a process that hangs, measured once; \"never\" is longer than 8 seconds, twice the lease.

A session of dlock and a connection of PostgreSQL end with the process, because the kernel closes the connection. They
do not end when the process hangs, and not at once when its machine or its network fails. etcd, ZooKeeper and leases
of dlock (here: the quorum) treat all of these alike: the lock is free when the timeout is over. [Leases and
sessions](choosing.md) describes how to choose.
";

pub const FAILOVER: &str = "\
## A server dies

Four clients raise a counter under the lock: each reads it, works for 2 ms, and writes it back. After a second, the
leader is killed with `kill -9`; where all servers are equal, the first one, which is the gate server of dlock's
quorum.

\"Nobody gets in\" is the longest time without a grant after the kill. The harness looks for six seconds, then until
grants have come for two seconds without a pause of a second, but for 15 seconds at most. \"Two inside\" counts grants
while another client was still at work. \"Lost\" counts writes that another write replaced; \"with fencing\" the same on a
counter that refuses a lower token (dlock's token, etcd's revision, ZooKeeper's sequence number). Redlock has no
token.

A primary of dlock with a replica is not in this table: Sentinel or an operator decides when to promote the replica,
and [a failover can lose a lock](replication.md#what-can-be-lost). PostgreSQL's advisory locks end with their server.
";

pub const FAILOVER_FAILED: &str = "\
`failed` is no verdict on a system: its failover was not measured, for the reason at the top of this page.
";

pub const FAILOVER_OF_ETCD: &str = "\
Why nobody gets into etcd for GAP s: it elects a new leader in about a second. Its servers pass writes
on to the dead leader until they notice that it is gone. Such a write is lost: \"some write requests might time out
after a new leader election\" [10]. The server that was asked answers after 7 seconds, which is its time for a request
with the default election timeout [11]. `Lock` and `Unlock` are such writes. So the holder, or the next in the queue
who asks again because the leader was its server, waits for this answer, and all others wait for that client. The
clients here set no deadline for a call, and etcd's own client has none by default. A deadline for `Unlock` and
another try could make it shorter; this was not tried. A deadline for `Lock` would also end the wait in the queue.
";

pub const CHOICE: &str = "\
## Which one to take

**etcd** if a lock must survive any failure of a minority, whatever the clocks of the servers do: it runs consensus
(Raft), syncs each step to disk, and fails over by itself. Most Kubernetes clusters already have one. Its revision is
a fencing token. You pay with a sync and a round trip between the servers for each step, and a dead holder blocks the
others for its TTL.

**ZooKeeper** for the same reasons, if you already run it, or if you use Curator and its recipes (leader election,
barriers, semaphores). Its session ends by timeout, too.

**PostgreSQL** if the lock protects data in the same database. No other system can be as simple: the lock is there, it
needs no second server, and `pg_advisory_xact_lock` ends with the very transaction that it protects, so neither leases
nor fencing are needed. Each waiting client occupies a connection and a server process, there is no lease for a client
that hangs, and a failover forgets all advisory locks.

**Redlock**, or plain `SET NX PX`, if your servers load no modules. Client libraries exist for every language. An
acquire asks each server once, where dlock's quorum needs three round trips, so a free lock is taken sooner. Waiting is
polling: with few waiters the lock stays free until one of them tries again, with many the tries are load for the
servers. The order is chance, and there is no fencing token.

**dlock on one server** if you run Redis or Valkey and a lost lock wastes work, or the resource checks the token. It
has a queue in the order of the requests, hand-off without polling, and a session that ends with the process. **Its
quorum** if a lock has to survive the failure of a server. It depends on clocks that run at the same speed, as Redlock
does; [quorum](quorum.md#assumptions) says how exactly. An agreement of the servers of etcd or ZooKeeper does not
depend on clocks: take one of them where this matters. With any system whose lease or session ends by time, a holder
that pauses for longer may go on while the next one has begun. Only a resource that checks the token refuses it.
";

pub const REPEAT: &str = "\
## Repeat it

On Debian 12 with [Rust](https://rustup.rs), on a machine with at least two cores on which nothing else runs:

```text
make bench-peers
```

It installs the servers (`scripts/setup peers`: `etcd-server`, `zookeeper`, `postgresql`, and `protoc`) without
starting their services, starts its own on 127.0.0.1 with data in a temporary folder, measures (this took MINUTES
minutes), and writes this page. If a part could not be measured, the page names it and the command fails at its end. A
missed target is no failure: the page says by how much it is missed, and why.

Some systems or parts only, which keeps nothing:

```text
cargo build --locked --release --manifest-path lab/peers/measure/Cargo.toml
DLOCK_SERVER=$(scripts/server) DLOCK_MODULE=target/release/libdlock.so \\
    target/release/dlock-peers --rounds 1 --only dlock --only etcd-1 --part alone --part hand-off/64
```

The commands that start each server are in [`lab/peers/measure/src/servers`](../lab/peers/measure/src/servers), and
the recipes in [`lab/peers/measure/src/clients`](../lab/peers/measure/src/clients).
";

pub const SOURCES: &str = "\
## Sources

1. Redis: [Distributed locks](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), for one
   server and for Redlock. It recommends `appendfsync always` against restarts, and a time for each server that is
   small beside the lease (\"~ 5-50 milliseconds\" for 10 seconds). It asks for a random delay between two tries and
   names none; 0 to 200 ms are those of [redlock-rb](https://github.com/antirez/redlock-rb), by its author.
2. etcd: [Concurrency API](https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/), the `Lock` service:
   \"the lock is held until Unlock is called on the key or the lease associate with the owner expires\".
3. etcd: [Clustering guide](https://etcd.io/docs/v3.4/op-guide/clustering/), static. Heartbeat and election timeout
   are the [defaults](https://etcd.io/docs/v3.4/tuning/).
4. ZooKeeper: [Recipes](https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks), locks. The nodes are
   named as by Curator's [`InterProcessMutex`](https://curator.apache.org/docs/recipes-shared-reentrant-lock/): with a
   GUID that finds the node again when the answer to its creation is lost.
5. ZooKeeper: [Administrator's guide](https://zookeeper.apache.org/doc/r3.8.0/zookeeperAdmin.html). `forceSync` is
   left on. `maxClientCnxns` limits the connections of one address, which is all that a test on one machine has; the
   default is 60, and 0 removes the limit.
6. ZooKeeper: the heap of its own [`zkEnv.sh`](https://github.com/apache/zookeeper/blob/release-3.8.0/bin/zkEnv.sh).
7. PostgreSQL: [Advisory locks](https://www.postgresql.org/docs/15/explicit-locking.html#ADVISORY-LOCKS) and [their
   functions](https://www.postgresql.org/docs/15/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS).
8. PostgreSQL: [Connections](https://www.postgresql.org/docs/15/runtime-config-connection.html). A client that waits
   needs a connection, and the default is 100 of them.
9. PostgreSQL: [Lock
   management](https://www.postgresql.org/docs/15/runtime-config-locks.html#GUC-DEADLOCK-TIMEOUT). \"Ideally the
   setting should exceed your typical transaction time, so as to improve the odds that a lock will be released before
   the waiter decides to check for deadlock.\"
10. etcd: [Failure modes](https://etcd.io/docs/v3.4/op-guide/failures/#leader-failure), leader failure.
11. etcd: `ReqTimeout` in
    [`etcdserver/config.go`](https://github.com/etcd-io/etcd/blob/v3.4.23/etcdserver/config.go), five seconds and twice
    the election timeout.
";
