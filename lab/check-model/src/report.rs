//! Explores scopes and prints a table.

use std::collections::BTreeMap;
use std::fmt;

use stateright::{Checker, HasDiscoveries, Model};

use crate::explorer::{Broken, Explorer, Instance};

/// What an exploration came to.
#[derive(Clone, Debug)]
pub struct Explored {
    pub name: String,
    /// Different states.
    pub states: usize,
    /// States that were come to, the same ones again too.
    pub steps: usize,
    /// How many actions the longest story has.
    pub depth: usize,
    /// Whether longer stories come to states that were not visited.
    pub is_cut: bool,
    pub properties: usize,
    pub reached: BTreeMap<&'static str, u64>,
    /// A broken property, and one of the shortest stories that break it.
    pub broken: Option<(Broken, Vec<String>)>,
}

/// Visits every state that is at most so many actions away, breadth first. One thread: with several, the order is not
/// strict, and a state that was first reached by a detour would cut what follows on it.
pub fn explore<I: Instance>(name: &str, scope: &I::Scope, depth: usize) -> Explored {
    let checker = Explorer::<I>::new(scope.clone(), depth).checker();
    let checker = checker.finish_when(HasDiscoveries::Any).threads(1).spawn_bfs().join();
    let broken = checker.discoveries().into_values().next().map(|path| {
        let last = path.last_state();
        (last.broken().expect("a discovery").clone(), last.story().iter().map(ToString::to_string).collect())
    });
    let depth_reached = checker.max_depth().saturating_sub(1);
    Explored {
        name: name.to_owned(),
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: depth_reached,
        is_cut: depth_reached == depth,
        properties: checker.model().properties().len(),
        reached: checker.model().reached(),
        broken,
    }
}

/// The head of the table.
pub fn head() -> String {
    format!(
        "| {:<36} | {:>5} | {:>9} | {:>9} | {:>10} | {} |\n|---|---|---|---|---|---|",
        "instance", "depth", "states", "steps", "properties", "result"
    )
}

/// A row of the table.
impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { name, states, steps, depth, properties, .. } = self;
        let is_all = !self.is_cut && self.broken.is_none();
        let depth = format!("{depth}{}", if is_all { ", all" } else { "" });
        write!(f, "| {name:<36} | {depth:>5} | {states:>9} | {steps:>9} | {properties:>10} | ")?;
        match &self.broken {
            None => write!(f, "all hold |"),
            Some((broken, _)) => write!(f, "\"{}\" breaks |", broken.property),
        }
    }
}

impl Explored {
    /// How a property breaks, if one does.
    pub fn story(&self) -> Option<String> {
        let (broken, story) = self.broken.as_ref()?;
        let lines = story.iter().enumerate().map(|(at, action)| format!("{:>4}. {action}\n", at + 1));
        let lines: String = lines.collect();
        Some(format!("{}, broken: {}\n{lines}then: {}\n", self.name, broken.property, broken.how))
    }
}
