//! The sentences of the page on parts that were measured or not. Lines are at most 120 columns long.

use crate::systems::{Kept, Made};

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
