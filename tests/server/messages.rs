//! Every error names what to mend: no mistake in the options of a command is answered by the server's words alone.

use std::collections::BTreeSet;

use redis::Value;

use crate::commands::with_key;
use crate::support::lock::fields_of;
use crate::support::{Client, Server, list_of, lock_info, req, text_of};

/// An option as `COMMAND DOCS` describes it.
#[derive(Clone, Debug)]
struct Word {
    name: String,
    /// The type in `COMMAND DOCS`: `pure-token` has no value, `string` has any, the others have a number.
    kind: String,
    /// The options that exclude each other have the same group.
    group: Option<String>,
}

fn field(argument: &Value, name: &str) -> Option<Value> {
    fields_of(argument).into_iter().find(|(field, _)| field == name).map(|(_, value)| value)
}

/// The options of a command, at any depth.
fn words(arguments: &Value, group: Option<&str>, found: &mut Vec<Word>) {
    for argument in list_of(arguments) {
        let text = |name| field(&argument, name).map(|value| text_of(&value));
        let kind = text("type").expect("a type");
        let group = if kind == "oneof" { text("name") } else { group.map(str::to_owned) };
        if let Some(name) = text("token") {
            found.push(Word { name, kind, group: group.clone() });
        }
        if let Some(inner) = field(&argument, "arguments") {
            words(&inner, group.as_deref(), found);
        }
    }
}

fn words_of(client: &mut Client, command: &str) -> Vec<Word> {
    let docs = fields_of(&client.run(format!("COMMAND DOCS {command}")));
    let mut found = Vec::new();
    let arguments = field(&docs[0].1, "arguments");
    if let Some(arguments) = arguments {
        words(&arguments, None, &mut found);
    }
    found
}

impl Word {
    /// The option with a value that is good.
    fn good(&self, now: i64) -> String {
        let value = match (self.kind.as_str(), self.name.as_str()) {
            ("pure-token", _) => return self.name.clone(),
            ("string", _) => "x".to_owned(),
            (_, "PXAT") => (now + 600_000).to_string(),
            (_, "EXAT") => (now / 1000 + 600).to_string(),
            _ => "1".to_owned(),
        };
        format!("{} {value}", self.name)
    }
}

/// The error starts with the server's words, and then says more: the word at fault is in it.
#[track_caller]
fn assert_names(error: &str, fault: &str) {
    assert!(error.starts_with("ERR "), "{error}");
    for bare in ["syntax error", "value is not an integer or out of range", "timeout is negative"] {
        assert_ne!(error.strip_prefix("ERR "), Some(bare));
    }
    let named = error.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word.eq_ignore_ascii_case(fault));
    assert!(named, "{fault} is not in: {error}");
}

#[test]
fn every_wrong_use_of_every_option_names_it() {
    let (server, mut client) = Server::start().with_client();
    let now = client.now();
    let mut tried = BTreeSet::new();
    for command in with_key().filter(|command| command.has_options()) {
        let (call, command) = (command.call("k"), command.name);
        let mut error = |options: &str| {
            tried.insert(format!("{command} {options}"));
            client.error(format!("{call} {options}"))
        };
        for unknown in ["NX", "5", "BLOCKS", "PX5000", "-1"] {
            assert_eq!(error(unknown), format!("ERR syntax error: unknown option '{unknown}'"));
        }
        let mut client = server.client();
        let words = words_of(&mut client, &format!("dlock.{command}"));
        assert!(!words.is_empty(), "{command} has options");
        // `COUNT` has its place after `FULL`.
        let before = |word: &Word| if word.name == "COUNT" { "FULL " } else { "" };
        for word in &words {
            let (name, before) = (word.name.as_str(), before(word));
            let good = format!("{before}{}", word.good(now));
            assert_eq!(
                error(&format!("{good} {}", word.good(now))),
                format!("ERR syntax error: {name} is given twice")
            );
            assert_names(&error(&format!("{good} NX")), "NX");
            if word.kind == "pure-token" {
                continue;
            }
            assert_eq!(error(&format!("{before}{name}")), format!("ERR syntax error: {name} needs a value"));
            if word.kind == "string" {
                continue;
            }
            for bad in ["ten", "1.5", "+1", "9223372036854775808", "-9223372036854775809"] {
                assert_names(&error(&format!("{before}{name} {bad}")), name);
            }
            assert_names(&error(&format!("{before}{name} -1")), name);
            // 0 means "no limit" to these.
            if !["BLOCK", "COUNT"].contains(&name) {
                assert_names(&error(&format!("{before}{name} 0")), name);
            }
            if name != "COUNT" {
                assert_names(&error(&format!("{before}{name} 9223372036854775807")), name);
            }
        }
        for one in &words {
            let rivals = words.iter().filter(|other| one.group.is_some() && other.group == one.group);
            for other in rivals.filter(|other| other.name != one.name && other.name != "COUNT" && one.name != "COUNT") {
                let text = error(&format!("{} {}", one.good(now), other.good(now)));
                let expected = format!("ERR syntax error: {} and {} cannot be used together", other.name, one.name);
                assert_eq!(text, expected);
            }
        }
        if words.iter().any(|word| word.name == "SESSION") {
            for absolute in words.iter().filter(|word| word.name.ends_with("AT")) {
                let expected = format!("ERR syntax error: SESSION and {} cannot be used together", absolute.name);
                assert_eq!(error(&format!("SESSION {}", absolute.good(now))), expected);
                assert_eq!(error(&format!("{} SESSION", absolute.good(now))), expected);
            }
        }
    }
    assert!(tried.len() > 400, "{}", tried.len());
    assert_eq!(client.int("DBSIZE"), 0);
}

#[test]
fn an_unset_variable_is_no_lock() {
    let (_server, mut client) = Server::start().with_client();
    for command in ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK"] {
        let command = format!("DLOCK.{command}");
        assert_eq!(client.error(req![&command, "", "a"]), "ERR the key name is empty");
        assert_eq!(client.error(req![&command, "", "a", "PX", 0, "BLOCK", "x"]), "ERR the key name is empty");
    }
    assert_eq!(client.error(req!["DLOCK.SACQUIRE", "", "a", 5]), "ERR the key name is empty");
    for keys in [["", "k"], ["k", ""], ["", ""]] {
        assert_eq!(client.error(req!["DLOCK.MACQUIRE", 2, &keys, "a"]), "ERR the key name is empty");
    }
    assert_eq!(client.int("DBSIZE"), 0);
    // A key of another type may have this name, and a lock that was renamed.
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.ok(["RENAME", "k", ""]);
    assert_eq!(client.int(["DLOCK.RENEW", "", "a"]), 1);
    assert!(lock_info(&mut client, "k").is_none());
    assert_eq!(client.int(["DLOCK.RELEASE", "", "a"]), 1);
}

#[test]
fn help_has_the_syntax_of_every_command() {
    let (_server, mut client) = Server::start().with_client();
    let lines: Vec<_> = list_of(&client.run("DLOCK.HELP")).iter().map(text_of).collect();
    assert_eq!(lines[0], "DLOCK.<command> <arg> ... Commands are:");
    assert!(lines.contains(&"DLOCK.INFO key [OWNER owner | FULL [COUNT count]]".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"DLOCK.LOG GET [count] | LEN | RESET | HELP".to_owned()), "{lines:#?}");
    let shown: BTreeSet<_> = lines[1..].iter().step_by(2).filter_map(|line| line.split(' ').next()).collect();
    let all = list_of(&client.run("COMMAND LIST FILTERBY MODULE dlock"));
    let all: BTreeSet<_> = all.iter().map(|name| text_of(name).to_uppercase()).collect();
    let all: BTreeSet<_> = all.iter().map(String::as_str).filter(|name| *name != "DLOCK.APPLY").collect();
    assert_eq!(shown, all);
    for pair in lines[1..].chunks(2) {
        assert!(pair[1].starts_with("    ") && pair[1].ends_with('.'), "{pair:?}");
    }
    assert_eq!(client.error("DLOCK.HELP me"), "ERR wrong number of arguments for 'dlock.help' command");
}
