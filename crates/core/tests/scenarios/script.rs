//! The text of a scenario.

use std::fmt;

use crate::interpreter::Interpreter;

/// A scenario: comments and steps in their order.
#[derive(Debug)]
pub struct Script(Vec<Part>);

#[derive(Debug)]
enum Part {
    /// A line between the steps.
    Between(String),
    Step {
        /// The line of the first expectation, from 1.
        line: usize,
        commands: Vec<String>,
        says: Vec<String>,
    },
}

impl Script {
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut parts = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            if is_between(line) {
                parts.push(Part::Between(line.to_owned()));
                continue;
            }
            let before = lines.by_ref().map(|(_, line)| line.to_owned());
            let rest: Vec<String> = before.take_while(|line| !line.is_empty()).collect();
            let step: Vec<String> = std::iter::once(line.to_owned()).chain(rest).collect();
            let end = step.iter().position(|line| line == RULE);
            let end = end.ok_or_else(|| format!("line {}: a step without {RULE}", at + 1))?;
            let (commands, says) = (step[..end].to_vec(), step[end + 1..].to_vec());
            parts.push(Part::Step { line: at + end + 2, commands, says });
            parts.push(Part::Between(String::new()));
        }
        Ok(Script(parts))
    }

    /// Plays the scenario. Returns it with the lines that the interpreter printed.
    pub fn play(&self, interpreter: &mut Interpreter) -> Script {
        let play = |part: &Part| match part {
            Part::Between(line) => Part::Between(line.clone()),
            Part::Step { line, commands, .. } => {
                let said =
                    commands.iter().filter(|command| !is_between(command)).flat_map(|command| interpreter.run(command));
                Part::Step { line: *line, commands: commands.clone(), says: said.collect() }
            }
        };
        Script(self.0.iter().map(play).collect())
    }

    /// Describes the first step whose output differs in `played`.
    pub fn difference(&self, played: &Script) -> Option<String> {
        self.0.iter().zip(&played.0).find_map(|parts| match parts {
            (Part::Step { line, says, .. }, Part::Step { says: said, .. }) if says != said => {
                Some(format!("line {line}: {}\n        is {}", says.join(" | "), said.join(" | ")))
            }
            _ => None,
        })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Between(line) => text.extend([line, "\n"]),
                Part::Step { commands, says, .. } => {
                    let lines =
                        commands.iter().map(String::as_str).chain([RULE]).chain(says.iter().map(String::as_str));
                    lines.for_each(|line| text.extend([line, "\n"]));
                }
            }
        }
        writeln!(f, "{}", text.trim_end())
    }
}

fn is_between(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

const RULE: &str = "----";
