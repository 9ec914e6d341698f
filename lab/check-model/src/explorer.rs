//! Visits every state of a scope up to a depth, breadth first.
//!
//! A state is the story that led to it and a fingerprint of the world at its end: a world is large, and is made again
//! from its story. States with the same fingerprint are the same.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use dlock_testkit::histories::World;

use crate::fingerprint::fingerprint;
use crate::scope::{Action, Scope};

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored {
    pub name: &'static str,
    /// Different states.
    pub states: usize,
    /// States that were reached, with repetitions.
    pub steps: usize,
    /// How many actions the longest story has.
    pub depth: usize,
    /// Whether longer stories may lead to other states.
    pub is_cut: bool,
    pub reached: BTreeSet<&'static str>,
    /// A shortest story at whose end something is wrong, and what.
    pub broken: Option<(Vec<String>, String)>,
}

struct Story {
    action: Action,
    before: Option<Rc<Story>>,
}

fn actions(story: Option<&Rc<Story>>) -> Vec<&Action> {
    let mut actions: Vec<&Action> =
        std::iter::successors(story, |story| story.before.as_ref()).map(|story| &story.action).collect();
    actions.reverse();
    actions
}

/// Visits every state that is at most this many actions away.
pub fn explore(scope: &Scope, depth: usize) -> Explored {
    let begin = World::begin(&scope.history());
    let mut seen = HashSet::from([fingerprint(&begin)]);
    let mut layer: Vec<Option<Rc<Story>>> = vec![None];
    let mut explored = Explored {
        name: scope.name,
        states: 1,
        steps: 1,
        depth: 0,
        is_cut: true,
        reached: BTreeSet::new(),
        broken: None,
    };
    while explored.depth < depth {
        let mut next_layer = Vec::new();
        for story in &layer {
            let mut world = begin.clone();
            for step in actions(story.as_ref()).into_iter().flat_map(|action| &action.0) {
                world.play_step(step);
            }
            for action in scope.actions(&world) {
                let mut world = world.clone();
                let played = catch_unwind(AssertUnwindSafe(|| action.0.iter().for_each(|step| world.step(step))));
                explored.steps += 1;
                if let Err(panic) = played {
                    let text = panic.downcast_ref::<String>().cloned();
                    let how = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    let story = actions(story.as_ref()).into_iter().chain([&action]).map(ToString::to_string);
                    explored.broken = Some((story.collect(), how.unwrap_or_default()));
                    explored.depth += 1;
                    return explored;
                }
                explored.reached.extend(world.reached().times.keys());
                if seen.insert(fingerprint(&world)) {
                    next_layer.push(Some(Rc::new(Story { action, before: story.clone() })));
                }
            }
        }
        explored.is_cut = !next_layer.is_empty();
        if next_layer.is_empty() {
            break;
        }
        explored.depth += 1;
        explored.states += next_layer.len();
        layer = next_layer;
    }
    explored
}

/// Returns the head of the table.
pub fn head() -> String {
    format!(
        "| {:<36} | {:>7} | {:>9} | {:>9} | {} |\n|---|---|---|---|---|",
        "instance", "depth", "states", "steps", "result"
    )
}

/// A row of the table.
impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { name, states, steps, depth, is_cut, broken, .. } = self;
        let depth = format!("{depth}{}", if *is_cut || broken.is_some() { "" } else { ", all" });
        let result = if broken.is_some() { "broken" } else { "as the model" };
        write!(f, "| {name:<36} | {depth:>7} | {states:>9} | {steps:>9} | {result} |")
    }
}

impl Explored {
    /// Returns the violation, and how to reach it.
    pub fn story(&self) -> Option<String> {
        let (story, how) = self.broken.as_ref()?;
        let lines: String = story.iter().enumerate().map(|(at, action)| format!("{:>4}. {action}\n", at + 1)).collect();
        Some(format!("{}, broken:\n{lines}then: {how}\n", self.name))
    }
}
