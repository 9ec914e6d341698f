//! The servers that Sentinels watch, and what the Sentinels say about a failover.

use std::collections::HashMap;
use std::time::Duration;

use dlock_client::Node;

use super::server::info;
use super::server::{REPLY, Server};
use super::steps::{Steps, Waited};
use super::stop::Stop;

/// The servers that the Sentinels know, after the checks.
pub struct Watched {
    pub name: String,
    /// The Sentinels that answer. The first one gets the command.
    pub sentinels: Vec<Node>,
    pub primary: Server,
    /// The replicas that Sentinel may promote.
    pub replicas: Vec<Server>,
    /// How long the primary may be silent before a Sentinel takes it as down.
    pub down_after: Duration,
    /// How long a Sentinel tries to promote a replica.
    pub failover_timeout: Duration,
}

/// The reply to `SENTINEL MASTER`, by field.
pub type Fields = HashMap<String, String>;

/// Waits until a Sentinel names another primary, after `ordered` got the command to fail over. `None`: that Sentinel
/// has given up, and none names another primary. A dry run returns the first replica.
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
    // Sentinel gives up after 10 seconds without an election, and after one timeout each without a replica that takes
    // the command, and without a promotion.
    let limit = watched.failover_timeout * 2 + Duration::from_secs(10);
    let mut signals = 0;
    loop {
        match steps.until("Sentinel has another primary", limit, &mut over).await {
            Waited::Done => break,
            Waited::Signal(signal) if signals == 0 => {
                signals += 1;
                let hint = "a second signal ends dlock, not the promotion";
                steps.say(&format!("{signal}: too late, Sentinel is promoting a replica; {hint}"));
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

/// Returns whether a Sentinel still names the old primary. `None`: the Sentinel does not answer.
pub async fn names_the_old_one(watched: &Watched, sentinel: &Node) -> Option<bool> {
    let state: Fields = sentinel.ask(&["SENTINEL", "MASTER", &watched.name], REPLY).await.ok()?;
    Some(place(&state) == Some((&watched.primary.host, watched.primary.port)))
}

/// Waits until all Sentinels name the new primary, and the old one follows it. Returns the new primary's address.
pub async fn settled(watched: &Watched, new: &Server, steps: &mut Steps) -> Result<String, Stop> {
    let address = new.address();
    let mut all_say_so = async || {
        for sentinel in &watched.sentinels {
            let state = sentinel.ask::<Fields>(&["SENTINEL", "MASTER", &watched.name], REPLY).await;
            if !state.is_ok_and(|state| place(&state) == Some((&new.host, new.port))) {
                return false;
            }
        }
        // The old primary may know the new one by another address, so the field `master_host` is not compared.
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

/// Returns the host and the port of the server that a Sentinel tells about.
pub fn place(state: &Fields) -> Option<(&str, u16)> {
    Some((state.get("ip")?, state.get("port")?.parse().ok()?))
}

pub fn field<'a>(state: &'a Fields, name: &str) -> &'a str {
    state.get(name).map_or("", String::as_str)
}

/// How many polls in a row must find no failover in progress before the Sentinel counts as having given up. At 20 ms
/// each they take 5 seconds: a command whose reply was lost may be executed late.
const IDLE: u32 = 250;

/// How long the Sentinels and the old primary may take to learn of the new one.
const SETTLE: Duration = Duration::from_secs(30);
