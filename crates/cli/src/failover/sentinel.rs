//! Failover of servers that Sentinels watch. A Sentinel has to choose and promote the replica: the Sentinels undo any
//! other promotion.

use std::time::Duration;

use dlock_client::{Error, Node, Operator};

use super::by_hand;
use super::server::{REPLY, Server, info};
use super::steps::{Phase, Steps};
use super::stop::Stop;
use super::watched::{Fields, Watched, field, place, settled, switched};
use crate::failover::options::FailoverOptions;

/// Hands over, and returns the address of the new primary.
pub async fn hand_over(
    operator: &Operator,
    name: &str,
    sentinels: Vec<Node>,
    options: &FailoverOptions,
    steps: &mut Steps,
) -> Result<String, Stop> {
    if options.to.is_some() {
        let why = "Sentinel chooses the replica: give the one that you want the lowest replica-priority, not --to";
        return Err(Stop::Usage(why.to_owned()));
    }
    let watched = look(operator, name, sentinels).await?;
    steps.notes_module(&watched.primary.node).await?;
    let replicas: Vec<_> = watched.replicas.iter().map(Server::address).collect();
    steps.say(&format!("primary {}, replicas {}", watched.primary.address(), replicas.join(" ")));
    steps.caught_up(Phase::Checks, &watched.primary.node, &watched.replicas, options.timeout).await?;
    match coordinator(&watched).await {
        Some(sentinel) => coordinated(&watched, sentinel, steps).await,
        None => by_hand::hand_over(&watched, options.timeout, steps).await,
    }
}

/// Asks the Sentinels. Fails unless a failover can begin.
async fn look(operator: &Operator, name: &str, all: Vec<Node>) -> Result<Watched, Stop> {
    let (mut sentinels, mut states) = (Vec::new(), Vec::new());
    let mut missing = Error::Unreachable("no Sentinel".into());
    for sentinel in all {
        match sentinel.ask::<Fields>(&["SENTINEL", "MASTER", name], REPLY).await {
            Ok(state) => {
                sentinels.push(sentinel);
                states.push(state);
            }
            Err(error) => missing = error,
        }
    }
    let (Some(sentinel), Some(state)) = (sentinels.first(), states.first()) else { return Err(missing.into()) };
    if states.iter().any(|other| place(other) != place(state)) {
        return Err(Stop::Kept("the Sentinels do not agree which server is the primary".to_owned()));
    }
    if let Some(state) = states.iter().find(|state| field(state, "flags") != "master") {
        return Err(Stop::Kept(format!("a Sentinel says of the primary: {}", field(state, "flags"))));
    }
    sentinel.ask::<String>(&["SENTINEL", "CKQUORUM", name], REPLY).await?;
    let (host, port) = place(state).ok_or_else(|| Stop::Kept("Sentinel names no address".to_owned()))?;
    let primary = Server::at(operator, host, port)?;
    if !info(&primary.node).await?.is_primary() {
        let what = "is a replica: Sentinel notices that by itself and promotes a replica";
        return Err(Stop::Kept(format!("{}, which Sentinel calls the primary, {what}", primary.address())));
    }
    let known: Vec<Fields> = sentinel.ask(&["SENTINEL", "REPLICAS", name], REPLY).await?;
    let replicas = candidates(operator, &known).await?;
    // The Sentinels may have different settings. If none tells its own, Sentinel's default counts for the promotion,
    // and a short time for the silence of the primary.
    let longest = |name| states.iter().filter_map(|state| field(state, name).parse().ok()).max().unwrap_or(180_000);
    let shortest = |name| states.iter().filter_map(|state| field(state, name).parse().ok()).min().unwrap_or(1_000);
    Ok(Watched {
        name: name.to_owned(),
        primary,
        replicas,
        down_after: Duration::from_millis(shortest("down-after-milliseconds")),
        failover_timeout: Duration::from_millis(longest("failover-timeout")),
        sentinels,
    })
}

/// Returns the replicas that Sentinel may promote. Fails if one of them could not take over: Sentinel might choose it.
async fn candidates(operator: &Operator, known: &[Fields]) -> Result<Vec<Server>, Stop> {
    let mut replicas = Vec::new();
    for state in known.iter().filter(|state| field(state, "slave-priority") != "0") {
        let Some((host, port)) = place(state) else { continue };
        let replica = Server::at(operator, host, port)?;
        if field(state, "flags") != "slave" {
            let what = format!("Sentinel says of the replica {}: {}", replica.address(), field(state, "flags"));
            let help = "let it come back, or have the Sentinels forget it (SENTINEL RESET)";
            return Err(Stop::Kept(format!("{what}; {help}")));
        }
        // The replica may have got the priority 0 after Sentinel last asked.
        if info(&replica.node).await.is_ok_and(|info| info.is_never_promoted()) {
            continue;
        }
        replica.check().await?;
        replicas.push(replica);
    }
    if replicas.is_empty() {
        return Err(Stop::Kept("there is no replica that Sentinel may promote".to_owned()));
    }
    Ok(replicas)
}

/// Returns a Sentinel that lets the servers coordinate the failover (Valkey 9 and later).
async fn coordinator(watched: &Watched) -> Option<&Node> {
    for sentinel in &watched.sentinels {
        let help = sentinel.ask::<Vec<String>>(&["SENTINEL", "HELP"], REPLY).await;
        if help.is_ok_and(|lines| lines.iter().any(|line| line.contains("COORDINATED"))) {
            return Some(sentinel);
        }
    }
    None
}

/// Lets the primary coordinate the failover: it pauses writes, waits for the replica and hands over.
async fn coordinated(watched: &Watched, sentinel: &Node, steps: &mut Steps) -> Result<String, Stop> {
    match steps.send(sentinel, &["SENTINEL", "FAILOVER", &watched.name, "COORDINATED"]).await {
        Err(Error::Refused(why)) => return Err(Stop::Kept(format!("Sentinel refuses: {why}"))),
        // The Sentinel may have received the command.
        Err(error) => steps.say(&error.to_string()),
        Ok(()) => {}
    }
    match switched(watched, sentinel, steps).await? {
        Some(new) => settled(watched, new, steps).await,
        None => Err(Stop::Kept("Sentinel has given up".to_owned())),
    }
}
