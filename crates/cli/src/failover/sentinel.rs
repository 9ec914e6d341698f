//! Servers that Sentinels watch. A Sentinel chooses the replica and promotes it: otherwise the Sentinels would undo it.

use std::collections::HashMap;
use std::time::Duration;

use dlock_client::{Error, Node, Operator};

use super::Stop;
use super::by_hand;
use super::server::{REPLY, Server, info};
use super::steps::{Phase, Steps, Waited};
use crate::args::FailoverOptions;

/// The servers that the Sentinels know, after the checks.
pub struct Watched {
    pub name: String,
    /// Those that answer. The first one gets the order.
    pub sentinels: Vec<Node>,
    pub primary: Server,
    /// All that Sentinel may promote.
    pub replicas: Vec<Server>,
    /// How long the Sentinels wait for a primary that does not answer.
    pub down_after: Duration,
    /// How long a Sentinel tries to promote a replica.
    pub failover_timeout: Duration,
}

type Fields = HashMap<String, String>;

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

/// Fails over by the primary, which pauses writes, waits for the replica and hands over.
async fn coordinated(watched: &Watched, sentinel: &Node, steps: &mut Steps) -> Result<String, Stop> {
    match steps.send(sentinel, &["SENTINEL", "FAILOVER", &watched.name, "COORDINATED"]).await {
        Err(Error::Refused(why)) => return Err(Stop::Kept(format!("Sentinel refuses: {why}"))),
        // It may have got it.
        Err(error) => steps.say(&error.to_string()),
        Ok(()) => {}
    }
    match switched(watched, sentinel, steps).await? {
        Some(new) => settled(watched, new, steps).await,
        None => Err(Stop::Kept("Sentinel has given up".to_owned())),
    }
}

/// Waits until a Sentinel names another primary, after one got the order. None: it has given up, and no Sentinel names
/// another one.
pub async fn switched<'a>(watched: &'a Watched, ordered: &Node, steps: &mut Steps) -> Result<Option<&'a Server>, Stop> {
    let old = (watched.primary.host.as_str(), watched.primary.port);
    let (mut new, mut idle) = (None, 0_u32);
    let mut over = async || {
        for sentinel in &watched.sentinels {
            let Ok(state) = sentinel.ask::<Fields>(&["SENTINEL", "MASTER", &watched.name], REPLY).await else {
                continue;
            };
            if let Some((host, port)) = place(&state).filter(|now| *now != old) {
                new = Some((host.to_owned(), port));
                return true;
            }
            if sentinel.address() == ordered.address() {
                idle = if field(&state, "flags").contains("failover_in_progress") { 0 } else { idle + 1 };
            }
        }
        idle > IDLE
    };
    let limit = watched.failover_timeout * 2 + Duration::from_secs(10);
    let mut signals = 0;
    loop {
        match steps.until("Sentinel has another primary", limit, &mut over).await {
            Waited::Done => break,
            Waited::Signal(signal) if signals == 0 => {
                signals += 1;
                steps.say(&format!("{signal}: too late, Sentinel is promoting a replica; again to leave it alone"));
            }
            Waited::Signal(_) => return Err(unclear(watched, "Sentinel is promoting a replica")),
            Waited::Late => return Err(unclear(watched, "Sentinel does not come to an end")),
        }
    }
    if steps.is_dry() {
        return Ok(watched.replicas.first());
    }
    let Some((host, port)) = new else { return Ok(None) };
    let known = watched.replicas.iter().find(|replica| (&replica.host, replica.port) == (&host, port));
    let stranger = || unclear(watched, &format!("Sentinel has promoted {host}:{port}, which was not checked"));
    known.map(Some).ok_or_else(stranger)
}

/// Returns whether a Sentinel still names the old primary. `None`: it does not answer.
pub async fn names_the_old_one(watched: &Watched, sentinel: &Node) -> Option<bool> {
    let state: Fields = sentinel.ask(&["SENTINEL", "MASTER", &watched.name], REPLY).await.ok()?;
    Some(place(&state) == Some((&watched.primary.host, watched.primary.port)))
}

/// Waits until all Sentinels name the new primary, and the old one follows it.
pub async fn settled(watched: &Watched, new: &Server, steps: &mut Steps) -> Result<String, Stop> {
    let address = new.address();
    let mut all_say_so = async || {
        for sentinel in &watched.sentinels {
            let state = sentinel.ask::<Fields>(&["SENTINEL", "MASTER", &watched.name], REPLY).await;
            if !state.is_ok_and(|state| place(&state) == Some((&new.host, new.port))) {
                return false;
            }
        }
        // Whom it follows may have another name there.
        info(&watched.primary.node).await.is_ok_and(|old| old.follows())
    };
    match steps.until("all Sentinels name it, and the old primary follows it", SETTLE, &mut all_say_so).await {
        Waited::Done => Ok(address),
        Waited::Late | Waited::Signal(_) => {
            let what = format!("{address} is the primary, but {} does not follow it yet", watched.primary.address());
            Err(Stop::Unclear(format!("{what}, or not all Sentinels know")))
        }
    }
}

/// Returns the end of a failover whose outcome is unknown, with the servers to look at.
pub fn unclear(watched: &Watched, what: &str) -> Stop {
    let ask = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", watched.name);
    Stop::Unclear(format!("{what}; ask the Sentinels ({ask}), and the servers by ROLE, before anything else"))
}

fn place(state: &Fields) -> Option<(&str, u16)> {
    Some((state.get("ip")?, state.get("port")?.parse().ok()?))
}

fn field<'a>(state: &'a Fields, name: &str) -> &'a str {
    state.get(name).map_or("", String::as_str)
}

/// So often in a row a Sentinel that was given an order must say that no failover is in progress: for 5 seconds, since
/// an order whose reply was lost may be executed late.
const IDLE: u32 = 250;

/// How long the others may take to hear of a new primary.
const SETTLE: Duration = Duration::from_secs(30);
