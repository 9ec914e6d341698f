//! The server's knowledge of the commands: docs, flags, keys, permissions.

use std::collections::{BTreeSet, HashMap};

use redis::Value;

use crate::commands::{COMMANDS, Kind, with_key};
use crate::support::lock::fields_of;
use crate::support::version::Version;
use crate::support::{Client, Server, list_of, text_of};

fn docs(client: &mut Client, command: &str) -> HashMap<String, Value> {
    let reply = fields_of(&client.run(format!("COMMAND DOCS dlock.{command}")));
    assert_eq!(reply.len(), 1, "{command} has docs");
    assert_eq!(reply[0].0, format!("dlock.{command}"));
    fields_of(&reply[0].1).into_iter().collect()
}

/// The words and the names in a list of arguments, at any depth.
fn collect(arguments: &Value, tokens: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
    for argument in list_of(arguments) {
        let fields: HashMap<_, _> = fields_of(&argument).into_iter().collect();
        names.insert(text_of(&fields["name"]));
        if let Some(token) = fields.get("token") {
            tokens.insert(text_of(token));
        }
        if let Some(inner) = fields.get("arguments") {
            collect(inner, tokens, names);
        }
    }
}

/// The words in the syntax of a command, as its page has it: those in capitals, and the names of values.
fn words_of_page(name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let path = format!("{}/docs/commands/{name}.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let syntax = page.split("```").nth(1).and_then(|block| block.strip_prefix("text\n")).expect("a syntax");
    assert!(syntax.starts_with(&format!("DLOCK.{}", name.to_uppercase())), "{path}: {syntax}");
    let words = syntax.split(|c: char| c.is_whitespace() || "[]|".contains(c)).skip(1);
    let words = words.filter(|word| word.contains(char::is_alphabetic)).map(str::to_owned);
    words.partition(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()))
}

#[test]
fn docs_describe_every_argument() {
    let server = Server::start();
    for mut client in [server.client(), server.client().resp3()] {
        for command in with_key().map(|command| command.name) {
            let docs = docs(&mut client, command);
            let summary = text_of(&docs["summary"]);
            assert!(summary.len() > 10, "{command}: {summary}");
            assert!(docs.contains_key("complexity") && docs.contains_key("since"), "{command}: {docs:?}");
            let (mut tokens, mut names) = (BTreeSet::new(), BTreeSet::new());
            collect(&docs["arguments"], &mut tokens, &mut names);
            let (shown, mut values) = words_of_page(command);
            if values.remove("option") {
                // `option` stands for those of the page of `ACQUIRE`.
                let all = &shown | &words_of_page("acquire").0;
                assert!(shown.is_subset(&tokens) && tokens.is_subset(&all), "{command}: {tokens:?}");
            } else {
                assert_eq!(tokens, shown, "{command}");
            }
            assert!(names.contains("key") && names.is_superset(&values), "{command}: {names:?}, {values:?}");
        }
    }
}

#[test]
fn docs_of_the_log_describe_its_subcommands() {
    let (_server, mut client) = Server::start().with_client();
    let docs = docs(&mut client, "log");
    let (mut tokens, mut names) = (BTreeSet::new(), BTreeSet::new());
    collect(&docs["arguments"], &mut tokens, &mut names);
    assert_eq!(tokens, ["GET", "HELP", "LEN", "RESET"].map(str::to_owned).into());
    assert!(names.contains("count") && !names.contains("key"), "{names:?}");
    let (arity, flags, keys) = command_info(&mut client, "log");
    assert_eq!((arity, keys), (-2, [0; 3]));
    for flag in ["admin", "loading", "stale"] {
        assert!(flags.contains(flag), "{flag}: {flags:?}");
    }
    assert!(!flags.contains("write") && !flags.contains("noscript"), "{flags:?}");
    client.error("COMMAND GETKEYS DLOCK.LOG GET 5");
}

#[test]
fn arguments_are_optional_where_the_syntax_says_so() {
    let (_server, mut client) = Server::start().with_client();
    for (command, required) in with_key().map(|command| (command.name, command.required())) {
        let arguments = list_of(&docs(&mut client, command)["arguments"]);
        let optional = |argument: &Value| {
            fields_of(argument)
                .iter()
                .any(|(name, flags)| name == "flags" && list_of(flags).iter().any(|flag| text_of(flag) == "optional"))
        };
        let found: Vec<_> = arguments.iter().map(optional).collect();
        assert!(found[..required].iter().all(|optional| !optional), "{command}: {found:?}");
        assert!(found[required..].iter().all(|optional| *optional), "{command}: {found:?}");
    }
}

/// `COMMAND INFO`: arity, flags, first key, last key, step.
#[track_caller]
fn command_info(client: &mut Client, command: &str) -> (i64, BTreeSet<String>, [i64; 3]) {
    let reply = list_of(&list_of(&client.run(format!("COMMAND INFO dlock.{command}")))[0]);
    let flags = list_of(&reply[2]).iter().map(text_of).collect();
    (crate::support::int_of(&reply[1]), flags, [3, 4, 5].map(|at| crate::support::int_of(&reply[at])))
}

#[test]
fn flags_and_keys_are_right() {
    let (_server, mut client) = Server::start().with_client();
    for command in COMMANDS.iter().filter(|command| command.kind != Kind::Keyless) {
        let name = command.name;
        let (arity, flags, keys) = command_info(&mut client, name);
        let has = |flag: &str| flags.contains(flag);
        let reads = command.kind == Kind::Reads;
        if name == "macquire" {
            // The number of keys is argument 1; `COMMAND GETKEYS` finds them.
            assert!(has("movablekeys"), "{flags:?}");
        } else {
            assert_eq!(keys, [1, 1, 1], "{name}");
        }
        assert_eq!(arity, command.arity(), "{name}");
        assert_eq!((has("readonly"), has("write")), (reads, !reads), "{name}");
        let takes = command.kind == Kind::Acquires;
        assert_eq!((has("denyoom"), has("blocking")), (takes, takes), "{name}: {flags:?}");
        assert_eq!(has("noscript"), name == "apply", "{name}: {flags:?}");
    }
}

#[test]
fn the_server_finds_the_key_and_what_is_done_to_it() {
    let (_server, mut client) = Server::start().with_client();
    let requests = with_key().flat_map(|command| command.calls("k").into_iter().map(|call| (command.kind, call)));
    for (kind, request) in requests {
        assert_eq!(list_of(&client.run(format!("COMMAND GETKEYS {request}"))), [Value::BulkString(b"k".to_vec())]);
        let found = list_of(&client.run(format!("COMMAND GETKEYSANDFLAGS {request}")));
        assert_eq!(found.len(), 1);
        let pair = list_of(&found[0]);
        assert_eq!(text_of(&pair[0]), "k");
        let flags: Vec<_> = list_of(&pair[1]).iter().map(text_of).collect();
        let reads = kind == Kind::Reads;
        let has = |flag: &str| flags.iter().any(|f| f == flag);
        assert_eq!((has("RO"), has("RW")), (reads, !reads), "{request}: {flags:?}");
        assert!(has("access"), "{request} tells what is stored: {flags:?}");
    }
}

#[test]
fn reading_needs_only_read_permission() {
    let (server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE k a");
    client.ok("ACL SETUSER watcher on nopass +@all %R~k");
    client.ok("ACL SETUSER locker on nopass +@all ~lock:*");
    let mut watcher = server.client();
    watcher.ok("AUTH watcher x");
    watcher.run("DLOCK.INFO k FULL");
    assert!(watcher.int(format!("DLOCK.CHECK k {token}")) > 0);
    for command in with_key() {
        let key = if command.kind == Kind::Reads { "other" } else { "k" };
        assert!(watcher.error(command.call(key)).starts_with("NOPERM"), "{}", command.name);
    }
    let mut locker = server.client();
    locker.ok("AUTH locker x");
    locker.int("DLOCK.ACQUIRE lock:1 a");
    locker.run("DLOCK.INFO lock:1");
    for command in with_key() {
        assert!(locker.error(command.call("k")).starts_with("NOPERM"), "{}", command.name);
    }
    client.ok("ACL SETUSER picky on nopass ~* -@all +dlock.acquire +dlock.release");
    let mut picky = server.client();
    picky.ok("AUTH picky x");
    picky.int("DLOCK.ACQUIRE p a");
    assert!(picky.error("DLOCK.INFO p").starts_with("NOPERM"));
    assert_eq!(picky.int("DLOCK.RELEASE p a"), 1);
}

#[test]
fn the_acl_has_a_category_where_the_server_allows_one() {
    let (server, mut client) = Server::start().with_client();
    if !Version::of(&mut client).has_module_categories() {
        assert!(client.error("ACL CAT dlock").starts_with("ERR"));
        return;
    }
    assert!(list_of(&client.run("ACL CAT")).iter().any(|category| text_of(category) == "dlock"));
    // `ACL CAT dlock` is no help: some servers leave the commands of modules out of it.
    for command in with_key().map(|command| command.name) {
        let reply = list_of(&list_of(&client.run(format!("COMMAND INFO dlock.{command}")))[0]);
        let categories: Vec<_> = list_of(&reply[6]).iter().map(text_of).collect();
        assert!(categories.contains(&"@dlock".to_owned()), "{command}: {categories:?}");
    }
    let apply = list_of(&list_of(&client.run("COMMAND INFO dlock.apply"))[0]);
    assert!(list_of(&apply[6]).iter().all(|category| text_of(category) != "@dlock"), "APPLY is for replicas");
    client.ok("ACL SETUSER locks on nopass ~* -@all +@dlock");
    let mut user = server.client();
    user.ok("AUTH locks x");
    user.int("DLOCK.ACQUIRE k a");
    assert!(user.error("GET k").starts_with("NOPERM"));
    client.ok("ACL SETUSER rest on nopass ~* +@all -@dlock");
    let mut user = server.client();
    user.ok("AUTH rest x");
    assert!(user.error("DLOCK.ACQUIRE k a").starts_with("NOPERM"));
}

#[test]
fn the_release_build_has_no_hooks() {
    let (_server, mut client) = Server::start().with_client();
    assert!(client.error("DLOCK.PANIC k").starts_with("ERR unknown command"));
    let all: BTreeSet<_> = list_of(&client.run("COMMAND LIST FILTERBY MODULE dlock")).iter().map(text_of).collect();
    let known: BTreeSet<_> = COMMANDS.iter().map(|command| format!("dlock.{}", command.name)).collect();
    assert_eq!(all, known);
}
