//! `dlock graph`: who waits for whom.
//!
//! Nodes are owners, which may hold locks on one server and wait on another. Each waiter waits for the request ahead of
//! it, and for the holders that its mode excludes. A request for a permit waits for any holder, not for a particular
//! one: such an edge is drawn, and is not part of a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::ValueEnum;
use dlock_client::{Client, Error, HoldInfo, HoldMode, LockInfo, WaiterInfo};

use crate::exit;
use crate::output::{complain, place, print, shown, time};

/// An owner that waits for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub why: Why,
    pub lock: Vec<u8>,
    pub server: String,
    pub waiting: Duration,
    /// Part of a cycle of owners that wait for each other.
    pub in_cycle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The other owner holds the lock.
    Held,
    /// The other owner holds permits. Those of any holder will do.
    Permits,
    /// The other owner is ahead in the queue.
    Ahead,
}

impl Why {
    fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Permits => "permits",
            Self::Ahead => "ahead",
        }
    }
}

pub async fn graph(clients: &[Client], pattern: &[u8], drawing: Drawing) -> Result<u8, Error> {
    let (mut all, mut missing, mut is_seen) = (Vec::new(), Vec::new(), false);
    for client in clients {
        match client.survey(pattern, 0).await {
            Ok(found) => {
                is_seen |= !found.answers.is_empty();
                for (server, locks) in found.answers {
                    all.extend(locks.into_iter().map(|lock| (server.clone(), lock)));
                }
                missing.extend(found.missing);
            }
            // The graph of the other servers is still useful.
            Err(error) if clients.len() > 1 => missing.push((client.place()?, error)),
            Err(error) => return Err(error),
        }
    }
    if !is_seen && !missing.is_empty() {
        complain(&missing);
        return Ok(exit::UNAVAILABLE);
    }
    let mut edges: Vec<_> = all.iter().flat_map(|(server, lock)| edges_of(server, lock)).collect();
    let cycles = mark_cycles(&mut edges);
    let lines = match drawing {
        Drawing::Text => as_trees(&all, &edges, &cycles),
        Drawing::Dot => as_dot(&edges),
        Drawing::Mermaid => as_mermaid(&edges),
    };
    lines.iter().for_each(|line| print(line));
    complain(&missing);
    Ok(if missing.is_empty() { 0 } else { exit::UNAVAILABLE })
}

fn edges_of(server: &str, lock: &LockInfo) -> Vec<Edge> {
    let mut edges = Vec::new();
    let mut ahead: Option<&[u8]> = None;
    for waiter in &lock.queue {
        let mut edge = |to: &[u8], why| {
            // An owner does not wait for itself: it upgrades, or uses two connections.
            if to != waiter.owner {
                edges.push(Edge {
                    from: waiter.owner.clone(),
                    to: to.to_vec(),
                    why,
                    lock: lock.name.clone(),
                    server: server.to_owned(),
                    waiting: waiter.waiting,
                    in_cycle: false,
                });
            }
        };
        let waits_alone = waiter.mode == HoldMode::Exclusive;
        for hold in &lock.holds {
            if waits_alone || hold.mode == HoldMode::Exclusive {
                edge(&hold.owner, Why::Held);
            } else if waiter.limit.is_some() {
                edge(&hold.owner, Why::Permits);
            }
        }
        if let Some(ahead) = ahead {
            edge(ahead, Why::Ahead);
        }
        ahead = Some(&waiter.owner);
    }
    edges
}

/// Marks the edges that are part of a cycle. Returns the owners of each cycle, in order.
fn mark_cycles(edges: &mut [Edge]) -> Vec<Vec<Vec<u8>>> {
    let mut next: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.why != Why::Permits) {
        next.entry(&edge.from).or_default().insert(&edge.to);
    }
    let on_cycle: Vec<bool> =
        edges.iter().map(|edge| edge.why != Why::Permits && path(&next, &edge.to, &edge.from).is_some()).collect();
    let mut cycles: Vec<Vec<Vec<u8>>> = Vec::new();
    for (edge, _) in edges.iter().zip(&on_cycle).filter(|(_, is_on)| **is_on) {
        let has_edge = |cycle: &Vec<Vec<u8>>| cycle.contains(&edge.from) && cycle.contains(&edge.to);
        if !cycles.iter().any(has_edge) {
            let back = path(&next, &edge.to, &edge.from).unwrap_or_default();
            cycles.push(std::iter::once(edge.from.clone()).chain(back).collect());
        }
    }
    for (edge, is_on) in edges.iter_mut().zip(on_cycle) {
        edge.in_cycle = is_on;
    }
    cycles
}

/// Returns the shortest way from one owner to another, both included.
fn path(next: &BTreeMap<&[u8], BTreeSet<&[u8]>>, from: &[u8], to: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reached: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    let mut todo = std::collections::VecDeque::from([from]);
    while let Some(owner) = todo.pop_front() {
        if owner == to {
            let mut way = vec![owner.to_vec()];
            let mut at = owner;
            while at != from {
                at = reached.get(at)?;
                way.push(at.to_vec());
            }
            way.reverse();
            return Some(way);
        }
        let Some((&owner, further)) = next.get_key_value(owner) else { continue };
        for &other in further {
            if other != from && !reached.contains_key(other) {
                reached.insert(other, owner);
                todo.push_back(other);
            }
        }
    }
    None
}

/// Draws a tree for each lock that is waited for: its holders, and below them the queue. The owners of each cycle
/// follow pair by pair.
fn as_trees(locks: &[(String, LockInfo)], edges: &[Edge], cycles: &[Vec<Vec<u8>>]) -> Vec<String> {
    let waited: Vec<_> = locks.iter().filter(|(_, lock)| !lock.queue.is_empty()).collect();
    if waited.is_empty() {
        return vec!["nobody waits".to_owned()];
    }
    let several = locks.iter().map(|(server, _)| server).collect::<BTreeSet<_>>().len() > 1;
    let mut lines = Vec::new();
    for (server, lock) in waited {
        lines.push(if several { format!("{} on {server}", shown(&lock.name)) } else { shown(&lock.name) });
        lines.extend(held(lock));
        lines.extend(queued(lock));
    }
    for edge in edges.iter().filter(|edge| edge.in_cycle) {
        lines.push(pair(edge, several));
    }
    for cycle in cycles {
        let owners: Vec<_> = cycle.iter().map(|owner| shown(owner)).collect();
        lines.push(format!("DEADLOCK: {}", owners.join(" -> ")));
    }
    lines
}

/// Returns a line for each holder.
fn held(lock: &LockInfo) -> Vec<String> {
    let line = |hold: &HoldInfo| {
        let what = match hold.mode {
            HoldMode::Shared if hold.count > 1 => format!("{} permits of", hold.count),
            HoldMode::Shared => "shared by".to_owned(),
            _ => "held by".to_owned(),
        };
        format!("├─ {what} {} for {}", shown(&hold.owner), time(hold.age))
    };
    lock.holds.iter().map(line).collect()
}

/// Returns a line for each waiter, in the order of the queue.
fn queued(lock: &LockInfo) -> Vec<String> {
    let last = lock.queue.len();
    let line = |(number, waiter): (usize, &WaiterInfo)| {
        let branch = if number == last { "└─" } else { "├─" };
        let wants = match (waiter.mode, waiter.limit, waiter.keys) {
            (HoldMode::Shared, Some(limit), _) => format!(", wants {} of {limit}", waiter.permits),
            (HoldMode::Shared, None, _) => ", to share it".to_owned(),
            (_, _, 2..) => format!(", wants {} locks", waiter.keys),
            _ => String::new(),
        };
        let (owner, waits) = (shown(&waiter.owner), time(waiter.waiting));
        format!("{branch} {number}. {owner} waits {waits}{wants}  client {}", place(waiter))
    };
    (1..).zip(&lock.queue).map(line).collect()
}

fn pair(edge: &Edge, several: bool) -> String {
    let place = if several { format!("{} on {}", shown(&edge.lock), edge.server) } else { shown(&edge.lock) };
    let why = match edge.why {
        Why::Held => format!("which holds {place}"),
        Why::Permits => format!("which has permits of {place}"),
        Why::Ahead => format!("which is ahead for {place}"),
    };
    format!("{} waits {} for {}, {why}  (cycle)", shown(&edge.from), time(edge.waiting), shown(&edge.to))
}

fn as_dot(edges: &[Edge]) -> Vec<String> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut lines = vec!["digraph waits {".to_owned(), "  rankdir=LR;".to_owned()];
    for edge in edges {
        let label = quoted(&label(edge));
        let style = if edge.why == Why::Held { "solid" } else { "dashed" };
        let color = if edge.in_cycle { ", color=red, penwidth=2" } else { "" };
        let [from, to] = [&edge.from, &edge.to].map(|owner| quoted(&shown(owner)));
        lines.push(format!("  {from} -> {to} [label={label}, style={style}{color}];"));
    }
    lines.push("}".to_owned());
    lines
}

fn as_mermaid(edges: &[Edge]) -> Vec<String> {
    // Entities, so that no character of a name is read as a part of the picture.
    let safe = |text: &str| {
        let plain = |c: char| c.is_alphanumeric() || " .:-_@/".contains(c);
        text.chars().map(|c| if plain(c) { c.to_string() } else { format!("#{};", u32::from(c)) }).collect::<String>()
    };
    let owners: BTreeSet<_> = edges.iter().flat_map(|edge| [&edge.from, &edge.to]).collect();
    let ids: BTreeMap<_, _> = owners.into_iter().zip(0..).collect();
    let id = |owner| ids.get(owner).copied().unwrap_or(0);
    let mut lines = vec!["graph LR".to_owned()];
    lines.extend(ids.iter().map(|(owner, id)| format!("  o{id}[\"{}\"]", safe(&shown(owner)))));
    for edge in edges {
        let arrow = if edge.why == Why::Held { "-->" } else { "-.->" };
        lines.push(format!("  o{} {arrow}|\"{}\"| o{}", id(&edge.from), safe(&label(edge)), id(&edge.to)));
    }
    let red: Vec<_> =
        edges.iter().zip(0..).filter(|(edge, _)| edge.in_cycle).map(|(_, n): (_, u32)| n.to_string()).collect();
    if !red.is_empty() {
        lines.push(format!("  linkStyle {} stroke:red,stroke-width:3px", red.join(",")));
    }
    lines
}

fn label(edge: &Edge) -> String {
    format!("{} {} {} {}", shown(&edge.lock), edge.why.name(), time(edge.waiting), edge.server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, why: Why) -> Edge {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let (server, waiting) = ("s".to_owned(), Duration::from_secs(1));
        Edge { from: bytes(from), to: bytes(to), why, lock: bytes("l"), server, waiting, in_cycle: false }
    }

    #[test]
    fn a_cycle_is_marked_and_returned_once() {
        use Why::{Ahead, Held};
        let mut edges = [
            edge("a", "b", Held),
            edge("b", "c", Ahead),
            edge("c", "a", Held),
            edge("d", "a", Held),
            edge("b", "e", Held),
        ];
        let cycles = mark_cycles(&mut edges);
        assert_eq!(edges.each_ref().map(|edge| edge.in_cycle), [true, true, true, false, false]);
        assert_eq!(cycles, [["a", "b", "c", "a"].map(|owner| owner.as_bytes().to_vec())]);
    }

    #[test]
    fn a_wait_for_permits_is_not_part_of_a_cycle() {
        let mut edges = [edge("a", "b", Why::Permits), edge("b", "a", Why::Held)];
        assert!(mark_cycles(&mut edges).is_empty());
        assert!(edges.iter().all(|edge| !edge.in_cycle));
    }

    #[test]
    fn names_of_owners_are_escaped_in_dot_and_mermaid() {
        let edges = [edge("a\"]; x", "b\\", Why::Held)];
        assert!(as_dot(&edges)[2].starts_with(r#"  "a\"]; x" -> "b\\" [label="#), "{:?}", as_dot(&edges));
        assert_eq!(as_mermaid(&edges)[1], "  o0[\"a#34;#93;#59; x\"]");
    }
}

/// The format of a graph.
#[derive(Clone, Copy, ValueEnum)]
pub enum Drawing {
    /// Lines to read
    Text,
    /// For Graphviz
    Dot,
    /// For Markdown
    Mermaid,
}
