//! Histories of the simulations, as the text of the files that all packages play.

use std::collections::HashMap;

use super::attempt::{self, Limit};
use super::attempt_world::{self, Outcome};
use super::text::{History, Line};
use super::validity::{Duty, Event, State, answers};
use super::world::{Step, run};

/// Returns the file of this many histories of a validity.
pub fn validity_file(count: usize) -> String {
    let mut text =
        "# Written by `make client-histories`: what the reference answers in random worlds. See README.md.\n"
            .to_owned();
    for history in validities(count) {
        text.push('\n');
        text.push_str(&history.to_string());
    }
    text
}

/// Returns the file of this many histories of an acquisition.
pub fn attempt_file(count: usize) -> String {
    let mut text = HEAD.to_owned();
    for history in attempts(count) {
        text.push('\n');
        text.push_str(&history.to_string());
    }
    text
}

fn attempts(count: usize) -> Vec<History> {
    let mut histories = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for seed in 1.. {
        let Outcome { limit, lease, trace, .. } = attempt_world::run(seed, None);
        if !(3..=LONGEST).contains(&trace.len()) || is_left_to_packages(limit, &trace) {
            continue;
        }
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let kind: Vec<_> =
            trace.iter().map(|(_, event, answer)| kind_of(&event.to_string(), &answer.to_string())).collect();
        let seen = known.entry(kind.join(" ")).or_default();
        *seen += 1;
        if *seen > OF_A_KIND {
            continue;
        }
        let first = format!("acquire limit={limit} lease={lease}");
        let mut lines = vec![Line { number: 0, at: 0, words: words(first), expected: vec!["try".to_owned()] }];
        for (number, (at, event, answer)) in trace.iter().enumerate() {
            let expected = if let attempt::Event::Sent(_) = event { Vec::new() } else { vec![answer.to_string()] };
            lines.push(Line { number: number + 1, at: *at, words: words(event.to_string()), expected });
        }
        histories.push(History { name: format!("seed {seed}"), lines });
        if histories.len() >= count {
            break;
        }
    }
    histories
}

/// Returns whether packages may differ from the reference in a history: if a command fails or the time runs out after a
/// grant has ended, or if after the time of the acquisition a command is cut or refused, or a confirmation is answered
/// without an outcome `granted`.
fn is_left_to_packages(limit: Limit, trace: &[(i64, attempt::Event, attempt::Answer)]) -> bool {
    use attempt::{Answer, Event};
    let mut is_gone = false;
    trace.iter().any(|(at, event, answer)| {
        let is_over = match limit {
            Limit::AtMost(limit) => *at >= limit,
            Limit::None => false,
            Limit::Try => *at >= 1000,
        };
        is_gone |= matches!(event, Event::Gone(_));
        match event {
            Event::Cut(_) | Event::Refused(_) | Event::Nil(_) | Event::Over | Event::Gone(_) if is_gone => {
                !matches!(event, Event::Gone(_)) || is_over
            }
            Event::Cut(_) | Event::Refused(_) => is_over,
            Event::Ok(_) => is_over && !matches!(answer, Answer::Granted { .. }),
            _ => false,
        }
    })
}

/// Returns the first words of an event and of its answer.
fn kind_of(event: &str, answer: &str) -> String {
    let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    format!("{}:{}", first(event), first(answer))
}

/// Returns this many histories of validities, at most [`OF_A_KIND`] of them with the same sequence of kinds of events.
fn validities(count: usize) -> Vec<History> {
    let mut histories = Vec::new();
    let mut known: HashMap<Vec<String>, usize> = HashMap::new();
    for seed in 1.. {
        for (hold, trace) in run(seed, None).traces.iter().enumerate() {
            let trace = until_it_is_over(trace);
            if !(3..=LONGEST).contains(&trace.len()) {
                continue;
            }
            let kind: Vec<_> = trace.iter().map(|step| step.event.words()[0].clone()).collect();
            let seen = known.entry(kind).or_default();
            *seen += 1;
            if *seen > OF_A_KIND {
                continue;
            }
            let lines = trace.iter().enumerate().map(|(at, step)| line_of(at, step)).collect();
            histories.push(History { name: format!("seed {seed} hold {hold}"), lines });
            if histories.len() >= count {
                return histories;
            }
        }
    }
    histories
}

/// Leaves out all events after the end of a hold, except for the first one.
fn until_it_is_over(trace: &[Step]) -> &[Step] {
    let over = trace.iter().position(|step| !matches!(step.after.state(), State::Until(_)));
    over.map_or(trace, |at| &trace[..trace.len().min(at + 2)])
}

fn line_of(number: usize, step: &Step) -> Line {
    let mut expected = answers(&step.after);
    let is_told = match step.event {
        Event::Capped(_) => true,
        // After a hold has reached its cap, there is no rule for its duties.
        _ if step.after.is_capped() => false,
        Event::Granted { .. } | Event::Sent { .. } | Event::Ok(_) | Event::Cut(_) | Event::Refused(_) => true,
        Event::Left(..) => matches!(step.after.duty(), Duty::Renew(_)),
        Event::Asked(_) | Event::Nil(_) | Event::Now | Event::Release => false,
    };
    if !is_told {
        expected.truncate(1);
    }
    Line { number, at: step.at, words: step.event.words(), expected }
}

/// The most events of a history.
const LONGEST: usize = 14;
/// The most histories with the same sequence of kinds of events, and for an acquisition also of answers.
const OF_A_KIND: usize = 3;

const HEAD: &str =
    "# Written by `make client-histories`: what the reference answers in random worlds. See README.md.\n";

/// The number of histories of acquisitions in the repository.
pub const ATTEMPTS: usize = 1000;

/// The number of histories of validities in the repository.
pub const VALIDITIES: usize = 2000;
