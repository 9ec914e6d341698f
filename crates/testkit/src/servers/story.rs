//! Test scripts ("stories") about locks, with a command and its expected reply per line:
//!
//! ```text
//! ACQUIRE k a            -> t1      a new name: a token greater than all before
//! RACQUIRE k a           -> t1      a known name: the same token
//! RELEASE k a TOKEN t1   -> 0
//! RLOCK k b              -> nil
//! INFO k                 -> mode=exclusive count=1 token=t1
//! RELEASE k a TOKEN 0    -> ! ERR   an error that begins with this text
//! ```
//!
//! The names of `DLOCK.` commands are written without the prefix (`INFO` is always `DLOCK.INFO`). The name of a token
//! in a command stands for the token. Empty lines, and lines that begin with `#`, are left out.

use std::collections::HashMap;

use redis::Value;

use crate::client::Client;
use crate::lock::Info;
use crate::server::Server;

/// The commands that are written without their prefix.
const COMMANDS: [&str; 10] =
    ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK", "SACQUIRE", "MACQUIRE", "RELEASE", "RENEW", "CHECK", "INFO"];

/// Runs a story on a new server.
#[track_caller]
pub fn tell(text: &str) {
    story(&mut Server::start().client(), text);
}

/// Runs a story and checks every reply. Returns the tokens by the names that the story gives them.
#[track_caller]
pub fn story(client: &mut Client, text: &str) -> HashMap<String, i64> {
    let mut tokens = HashMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (command, expected) = line.split_once("->").unwrap_or_else(|| panic!("no -> in {line:?}"));
        let words: Vec<String> = command
            .split_whitespace()
            .enumerate()
            .map(|(at, word)| match (at, tokens.get(word)) {
                (0, _) if COMMANDS.contains(&word) => format!("DLOCK.{word}"),
                (_, Some(token)) => i64::to_string(token),
                _ => word.to_owned(),
            })
            .collect();
        let reply = client.attempt(&words);
        if let Err(why) = check(expected.trim(), &reply, &mut tokens) {
            panic!("{line}\n   {why}, got {reply:?}\n   tokens {tokens:?}");
        }
    }
    tokens
}

/// Checks a reply, and names a token that is new. The error says what was expected.
fn check(expected: &str, reply: &Result<Value, String>, tokens: &mut HashMap<String, i64>) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("expected {what}"));
    if let Some(start) = expected.strip_prefix('!') {
        return match reply {
            Err(text) if text.starts_with(start.trim()) => Ok(()),
            _ => wrong("an error"),
        };
    }
    match (expected, reply) {
        ("nil", Ok(Value::Nil)) | ("OK", Ok(Value::Okay)) => Ok(()),
        (_, Ok(Value::Int(n))) if expected.parse() == Ok(*n) => Ok(()),
        (_, Ok(value)) if expected.contains('=') && *value != Value::Nil => fields(expected, value, tokens),
        (_, Ok(Value::Int(token))) if expected.starts_with('t') => match tokens.get(expected) {
            Some(known) if known == token => Ok(()),
            Some(_) => wrong("the token of that name"),
            None if tokens.values().any(|other| other >= token) => wrong("a token greater than all before"),
            None => {
                tokens.insert(expected.to_owned(), *token);
                Ok(())
            }
        },
        _ => wrong(expected),
    }
}

/// Checks the named fields of a reply to `INFO`.
fn fields(expected: &str, value: &Value, tokens: &HashMap<String, i64>) -> Result<(), String> {
    let info = Info::of(value);
    for (name, wanted) in expected.split_whitespace().filter_map(|field| field.split_once('=')) {
        let found = match name {
            "mode" => info.mode.clone(),
            "holders" => info.holders.to_string(),
            "count" => info.count.to_string(),
            "token" => info.token.to_string(),
            "holds" => {
                info.holds().iter().map(|hold| String::from_utf8_lossy(&hold.owner)).collect::<Vec<_>>().join(",")
            }
            _ => return Err(format!("no field {name}")),
        };
        let wanted = tokens.get(wanted).map_or(wanted.to_owned(), ToString::to_string);
        if found != wanted {
            return Err(format!("{name} is {found}, not {wanted}"));
        }
    }
    Ok(())
}
