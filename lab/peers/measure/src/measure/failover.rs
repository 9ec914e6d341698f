//! Four clients raise a counter under a lock while the leader is killed: how long nobody gets in, what is lost, and
//! what would be lost without fencing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use dlock_comparison::systems::Made;
use futures::future::join_all;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::Round;
use crate::clients::Client;
use crate::result::{Result, failed};
use crate::servers::{etcd, zookeeper};
use crate::systems::System;

#[derive(Default)]
struct Work {
    ended: Cell<bool>,
    grants: RefCell<Vec<Instant>>,
    inside: Cell<u32>,
    /// How often two were inside.
    doubled: Cell<u64>,
    /// Read before the work and written after it.
    counter: Cell<u64>,
    written: Cell<u64>,
    /// The same on a resource that refuses lower tokens.
    fenced: Cell<u64>,
    fenced_written: Cell<u64>,
    highest: Cell<u64>,
    refused: Cell<u64>,
    has_tokens: Cell<bool>,
}

pub async fn run(round: &mut Round) -> Result<()> {
    let addresses = round.servers.addresses.clone();
    let leader = match round.system.0.made {
        Made::Etcd => etcd::leader(&addresses).await?,
        Made::ZooKeeper => zookeeper::leader(&addresses).await?,
        // The only server, the primary, or the one that all clients ask first.
        Made::Dlock | Made::DlockReplica | Made::DlockQuorum | Made::Redlock | Made::Postgres => 0,
    };
    let work = Rc::new(Work::default());
    let clients = round.clients(4).await?;
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|client| spawn_local(work_on(client, round.system, addresses.clone(), work.clone())))
        .collect();
    sleep(Duration::from_secs(1)).await;
    let killed = Instant::now();
    round.servers.kill(leader)?;
    let end = look(&work, killed).await;
    work.ended.set(true);
    // A client that still waits for a grant is dropped with its task.
    let _ = timeout(Duration::from_secs(1), join_all(tasks)).await;
    let grants = work.grants.borrow();
    let after: Vec<Instant> = grants.iter().copied().filter(|grant| *grant >= killed && *grant < end).collect();
    if grants.iter().all(|grant| *grant >= killed) {
        return failed("no grant before the leader was killed");
    }
    if after.is_empty() {
        return failed(format!("no grant within {} s of the end of the leader", LONGEST.as_secs()));
    }
    // The longest time without a grant; a grant that was on its way when the leader died does not end it. The end of the
    // measurement cuts off the last pause. A long last pause counts, but its length is not known: `gap` is `None` if it is
    // the longest.
    let starts = [killed].into_iter().chain(after.iter().copied());
    let cut = after.last().filter(|last| end - **last > PAUSE).map(|_| end);
    let ends = after.iter().copied().chain(cut);
    let longest = starts.zip(ends).max_by_key(|(from, to)| *to - *from);
    let gap = longest.filter(|(_, to)| *to < end).map(|(from, to)| (to - from).as_secs_f64());
    round.note_if("failover/gap", gap);
    let counted = after.iter().filter(|grant| **grant - killed < LOOK).count();
    round.note("failover/grants", counted as f64);
    round.note("failover/doubled", work.doubled.get() as f64);
    round.note("failover/lost", (work.written.get() - work.counter.get()) as f64);
    if work.has_tokens.get() {
        round.note("failover/lost-fenced", (work.fenced_written.get() - work.fenced.get()) as f64);
        round.note("failover/refused", work.refused.get() as f64);
    }
    Ok(())
}

/// Waits until clients have got in for a while without a long pause. Returns the time at which it stopped.
async fn look(work: &Work, killed: Instant) -> Instant {
    let mut steady = killed;
    loop {
        sleep(PAUSE / 20).await;
        let now = Instant::now();
        let last = work.grants.borrow().last().copied();
        if last.is_none_or(|last| now - last > PAUSE) {
            steady = now;
        }
        if now - killed >= LONGEST || (now - killed >= LOOK && now - steady >= STEADY) {
            return now;
        }
    }
}

async fn work_on(mut client: Client, system: System, addresses: Vec<String>, work: Rc<Work>) {
    let mut errors = 0;
    while !work.ended.get() {
        let held = match client.acquire("counter").await {
            Ok(held) => held,
            Err(error) => {
                errors += 1;
                let text = error.to_string();
                sleep(Duration::from_millis(20)).await;
                // A session that has ended does not come back.
                if (errors > 20 || text.contains("lease not found") || text.contains("expired"))
                    && let Ok(Ok(new)) = timeout(Duration::from_secs(1), system.connect(&addresses, 4)).await
                {
                    std::mem::replace(&mut client, new).close().await;
                    errors = 0;
                }
                continue;
            }
        };
        errors = 0;
        work.grants.borrow_mut().push(Instant::now());
        work.doubled.set(work.doubled.get() + u64::from(work.inside.get() > 0));
        work.inside.set(work.inside.get() + 1);
        let (counter, fenced) = (work.counter.get(), work.fenced.get());
        sleep(Duration::from_millis(2)).await;
        work.counter.set(counter + 1);
        work.written.set(work.written.get() + 1);
        if let Some(token) = held.token {
            work.has_tokens.set(true);
            if token < work.highest.get() {
                work.refused.set(work.refused.get() + 1);
            } else {
                work.highest.set(token);
                work.fenced.set(fenced + 1);
                work.fenced_written.set(work.fenced_written.get() + 1);
            }
        }
        work.inside.set(work.inside.get() - 1);
        // If it fails, the session or the lease ends the hold.
        let _ = client.release("counter", held).await;
    }
}

/// How long `look` waits at least. Grants are counted in this time.
const LOOK: Duration = Duration::from_secs(6);

/// How long `look` waits at most: more than twice the 7 s after which etcd gives up a request.
const LONGEST: Duration = Duration::from_secs(15);

/// How long nobody may get in until the work counts as interrupted.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the work has to go on without an interruption.
const STEADY: Duration = Duration::from_secs(2);
