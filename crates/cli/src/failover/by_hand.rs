//! A failover that Sentinel does not coordinate (Redis, Valkey 8). Writes to the old primary are paused until all
//! replicas have them. Then it becomes a replica, and no server grants a lock until Sentinel has promoted a replica.
//!
//! The old primary becomes a replica of its own address. It finds no primary there, so it keeps its data. As a replica
//! of a server that has less, it would lose the difference.
//!
//! Sentinel takes a primary that is paused for too long as down, since `CLIENT PAUSE` also delays the messages that
//! Sentinel publishes. The replicas have half of `down-after-milliseconds` at most to catch up.

use std::time::{Duration, Instant};

use dlock_client::Error;
use tokio::time::sleep;

use super::server::{Server, info};
use super::steps::{Phase, Steps, Waited};
use super::stop::Stop;
use crate::failover::watched::{Watched, names_the_old_one, settled, switched, unclear};

/// Hands over, and returns the address of the new primary.
pub async fn hand_over(watched: &Watched, timeout: Duration, steps: &mut Steps) -> Result<String, Stop> {
    let limit = timeout.min(watched.down_after / 2);
    let mut attempts = 1;
    while !demoted(watched, limit, steps).await? {
        if attempts == ATTEMPTS {
            return Err(Stop::Kept("the replicas did not get the end of what the primary sent".to_owned()));
        }
        attempts += 1;
    }
    let new = promoted(watched, steps).await?;
    follow(watched, new, steps).await;
    settled(watched, new, steps).await
}

/// Makes the primary a replica whose data all other replicas have. False: a replica lacked some of it, and the old
/// primary is the primary again.
async fn demoted(watched: &Watched, limit: Duration, steps: &mut Steps) -> Result<bool, Stop> {
    let primary = &watched.primary.node;
    // The pause ends by itself if this process dies.
    let (begin, pause) = (Instant::now(), (limit + MARGIN).as_millis().to_string());
    if let Err(error) = steps.send(primary, &["CLIENT", "PAUSE", &pause, "WRITE"]).await {
        return Err(Stop::Kept(format!("{error}; if the writes are paused, then for {pause} ms at most")));
    }
    if let Err(stop) = steps.caught_up(Phase::Steps, primary, &watched.replicas, limit).await {
        return Err(unpaused(watched, stop, steps).await);
    }
    if begin.elapsed() > limit + MARGIN / 2 {
        return Err(unpaused(watched, Stop::Kept("the pause is nearly over".to_owned()), steps).await);
    }
    match steps.send(primary, &["REPLICAOF", &watched.primary.host, &watched.primary.port.to_string()]).await {
        Ok(()) => {}
        Err(Error::Refused(why)) => {
            return Err(unpaused(watched, Stop::Kept(format!("the primary refuses: {why}")), steps).await);
        }
        Err(error) => return Err(lost(watched, &error, steps).await),
    }
    // The pause may have ended before the primary became a replica. The offsets tell, now that nothing is written.
    let mut nothing_more = async || {
        let Ok(old) = info(primary).await else { return false };
        for replica in &watched.replicas {
            if !info(&replica.node).await.is_ok_and(|info| info.offset() == old.offset()) {
                return false;
            }
        }
        old.is_replica()
    };
    let checked = steps.until("the old primary has nothing that a replica lacks", CHECK, &mut nothing_more).await;
    if let Waited::Done = checked {
        // Paused clients get the error that this server is a replica.
        if let Err(error) = steps.send(primary, &["CLIENT", "UNPAUSE"]).await {
            steps.say(&format!("{error}; the pause ends by itself after {pause} ms"));
        }
        return Ok(true);
    }
    take_back(watched, Ordered::No, steps).await?;
    match checked {
        Waited::Signal(signal) => Err(Stop::Ended(signal)),
        _ => Ok(false),
    }
}

/// Lets a Sentinel promote a replica. If no Sentinel does, the old primary is the primary again.
async fn promoted<'a>(watched: &'a Watched, steps: &mut Steps) -> Result<&'a Server, Stop> {
    let (mut why, mut ordered) = ("no Sentinel answers".to_owned(), Ordered::No);
    for sentinel in &watched.sentinels {
        let order = match names_the_old_one(watched, sentinel).await {
            None => continue,
            Some(true) => steps.send(sentinel, &["SENTINEL", "FAILOVER", &watched.name]).await,
            // The Sentinels have promoted a replica by themselves: this process was suspended for long.
            Some(false) => Ok(()),
        };
        match order {
            Err(Error::Refused(refusal)) => {
                why = format!("Sentinel {} refuses: {refusal}", sentinel.address());
                continue;
            }
            // The Sentinel may have got the command.
            Err(error) => steps.say(&error.to_string()),
            Ok(()) => {}
        }
        ordered = Ordered::Yes;
        follow_early(watched, steps).await;
        match switched(watched, sentinel, steps).await? {
            Some(new) => return Ok(new),
            None => why = format!("Sentinel {} has given up", sentinel.address()),
        }
    }
    take_back(watched, ordered, steps).await?;
    Err(Stop::Kept(why))
}

/// Lets the old primary follow the promoted replica a second before Sentinel notices the promotion. With
/// `min-replicas-to-write`, the new primary accepts no write before a replica follows it.
async fn follow_early(watched: &Watched, steps: &mut Steps) {
    let mut new = watched.replicas.first();
    let mut is_promoted = async || {
        for replica in &watched.replicas {
            if info(&replica.node).await.is_ok_and(|info| info.is_primary()) {
                new = Some(replica);
                return true;
            }
        }
        false
    };
    if let (Waited::Done, Some(new)) = (steps.until("a replica has been promoted", EARLY, &mut is_promoted).await, new)
    {
        try_to(&watched.primary, &["REPLICAOF", &new.host, &new.port.to_string()], steps).await;
    }
}

/// Does to the old primary what Sentinel does 10 seconds later: lets it follow the new primary, saves that in its
/// configuration, and closes the connections of clients, so that they ask Sentinel.
async fn follow(watched: &Watched, new: &Server, steps: &Steps) {
    let old = &watched.primary;
    // Has no effect if the old primary follows it already.
    try_to(old, &["REPLICAOF", &new.host, &new.port.to_string()], steps).await;
    try_to(old, &["CONFIG", "REWRITE"], steps).await;
    try_to(old, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"], steps).await;
    try_to(old, &["CLIENT", "KILL", "TYPE", "pubsub"], steps).await;
}

/// Sends a command that may fail: Sentinel does the same later.
async fn try_to(server: &Server, command: &[&str], steps: &Steps) {
    if let Err(error) = steps.send(&server.node, command).await {
        steps.say(&error.to_string());
    }
}

/// Ends the pause of the primary, which stays the primary. Returns `stop`.
async fn unpaused(watched: &Watched, stop: Stop, steps: &Steps) -> Stop {
    if let Err(error) = steps.send(&watched.primary.node, &["CLIENT", "UNPAUSE"]).await {
        steps.say(&format!("{error}; the pause ends by itself"));
    }
    stop
}

/// Whether a Sentinel may have been told to promote a replica.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ordered {
    Yes,
    No,
}

/// Makes the old primary the primary again. Call it only while no Sentinel promotes a replica.
async fn take_back(watched: &Watched, ordered: Ordered, steps: &Steps) -> Result<(), Stop> {
    for replica in &watched.replicas {
        match info(&replica.node).await {
            Ok(info) if info.is_primary() => {
                return Err(unclear(watched, &format!("{} has become a primary", replica.address())));
            }
            Err(error) if ordered == Ordered::Yes => {
                return Err(unclear(watched, &format!("{error}: {} may be a primary", replica.address())));
            }
            _ => {}
        }
    }
    let old = &watched.primary;
    for command in [["REPLICAOF", "NO", "ONE"].as_slice(), &["CLIENT", "UNPAUSE"]] {
        if let Err(error) = steps.send(&old.node, command).await {
            let state = format!("{error}: {} may still be a replica, and no server takes writes", old.address());
            return Err(unclear(watched, &format!("{state}, until the Sentinels promote one")));
        }
    }
    Ok(())
}

/// Handles a connection that broke during `REPLICAOF`: looks whether the primary has become a replica, and if so makes
/// it the primary again.
async fn lost(watched: &Watched, error: &Error, steps: &Steps) -> Stop {
    steps.say(&format!("{error}; looking whether the primary has become a replica"));
    let (end, mut primary) = (Instant::now() + SEARCH, 0);
    while Instant::now() < end {
        match info(&watched.primary.node).await {
            Ok(info) if info.is_replica() => {
                let kept = Stop::Kept(format!("the connection to the primary was lost: {error}"));
                return take_back(watched, Ordered::No, steps).await.err().unwrap_or(kept);
            }
            Ok(_) => primary += 1,
            Err(_) => primary = 0,
        }
        // A primary is asked again for a second: the server may execute `REPLICAOF` late.
        if primary > 5 {
            return unpaused(watched, Stop::Kept(error.to_string()), steps).await;
        }
        sleep(Duration::from_millis(200)).await;
    }
    let what = format!("{error}: {} may have become a replica", watched.primary.address());
    unclear(watched, &format!("{what}; then no server takes writes, until the Sentinels promote one"))
}

/// How much longer the pause lasts than the wait for the replicas.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the replicas may lack something after the primary has become a replica: even while writes are paused, it
/// sends `PING` to them, which may be on its way.
const CHECK: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 3;

/// How long to wait for a promotion. Later, Sentinel itself has noticed it, and a longer wait gains nothing.
const EARLY: Duration = Duration::from_secs(3);

/// How long to look for a primary after its connection broke.
const SEARCH: Duration = Duration::from_secs(15);
