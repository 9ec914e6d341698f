//! Explores scopes and prints a table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

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
    pub time: Duration,
    pub reached: BTreeMap<&'static str, u64>,
    /// A broken property, and one of the shortest stories that break it.
    pub broken: Option<(Broken, Vec<String>)>,
}

/// Visits every state that is at most so many actions away, breadth first. One thread: with several, the order is not
/// strict, and a state that was first reached by a detour would cut what follows on it.
pub fn explore<I: Instance>(name: &str, scope: &I::Scope, depth: usize) -> Explored {
    let start = Instant::now();
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
        time: start.elapsed(),
        reached: checker.model().reached(),
        broken,
    }
}

/// The head of the table.
pub fn head() -> String {
    format!("{:<36} {:>5} {:>10} {:>11} {:>10} {:>7}", "scope", "depth", "states", "steps", "properties", "seconds")
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { name, states, steps, depth, properties, .. } = self;
        let all = if self.is_cut { " " } else { "*" };
        let seconds = self.time.as_secs_f64();
        write!(f, "{name:<36} {depth:>4}{all} {states:>10} {steps:>11} {properties:>10} {seconds:>7.1}")?;
        if let Some((broken, story)) = &self.broken {
            write!(f, "\n\nbroken: {}\n", broken.property)?;
            for (at, action) in story.iter().enumerate() {
                writeln!(f, "{:>4}. {action}", at + 1)?;
            }
            writeln!(f, "then: {}", broken.how)?;
        }
        Ok(())
    }
}
