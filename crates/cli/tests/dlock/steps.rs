//! A lock across steps: `dlock acquire`, `dlock renew` and `dlock release`.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{Notes, Outcome, Running, With, dlock, outcome};
use dlock_testkit::{Server, lock_info, soon};

#[track_caller]
fn run(server: &Server, arguments: &[&str]) -> Outcome {
    outcome(dlock(server).with(arguments))
}

/// Runs `dlock` and returns the JSON that it prints.
#[track_caller]
fn json(server: &Server, arguments: &[&str]) -> Value {
    let done = run(server, arguments);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    serde_json::from_str(&done.stdout).expect("JSON")
}

/// Runs a shell script that finds this `dlock` on its path.
fn shell(server: &Server, script: &str) -> Outcome {
    let template = dlock(server);
    let folder = Path::new(template.get_program()).parent().expect("a folder").display().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", script]).env_remove("DLOCK_OWNER").env_remove("DLOCK_TOKEN").stdin(Stdio::null());
    command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()));
    outcome(command)
}

#[test]
fn a_lock_is_acquired_renewed_and_released_by_processes_of_their_own() {
    let (server, mut client) = Server::start().with_client();
    let lock = json(&server, &["acquire", "deploy", "--lease", "2h", "--label", "ci run 7"]);
    let owner = lock["owner"].as_str().expect("an owner");
    assert!(owner.starts_with("ci run 7:"), "{lock}");
    let info = lock_info(&mut client, "deploy FULL").expect("a lock");
    assert_eq!((&lock["name"], &lock["token"]), (&"deploy".into(), &info.holds()[0].token.into()));
    assert!((7_100_000..=7_200_000).contains(&info.holds()[0].ttl), "nothing has shortened it");
    let token = lock["token"].to_string();

    let renewed = json(&server, &["renew", "deploy", owner, "--token", &token, "--lease", "3h", "--json"]);
    assert_eq!((&renewed["renewed"], &renewed["name"]), (&true.into(), &"deploy".into()));
    assert!(client.int("PTTL deploy") > 7_200_000);
    // Without `--lease`, the hold keeps the lease that it was given last.
    client.int("PEXPIRE deploy 600000");
    json(&server, &["renew", "deploy", owner, "--json"]);
    assert!(client.int("PTTL deploy") > 7_200_000);

    let released = json(&server, &["release", "deploy", owner, "--token", &token, "--json"]);
    assert_eq!(released["released"], true);
    assert!(server.holders("deploy").is_empty());
}

#[test]
fn a_renewal_or_release_by_another_owner_or_token_is_refused() {
    let (server, mut client) = Server::start().with_client();
    let lock = json(&server, &["acquire", "deploy", "--lease", "1h"]);
    let (owner, token) = (lock["owner"].as_str().expect("an owner"), lock["token"].as_u64().expect("a token"));
    let other = (token + 1).to_string();
    for (arguments, why) in [
        (&["renew", "deploy", "alice"][..], "deploy is not held by alice"),
        (&["renew", "deploy", owner, "--token", &other], "with token"),
        (&["release", "deploy", "alice"], "deploy is not held by alice"),
        (&["release", "deploy", owner, "--token", &other], "with token"),
        (&["renew", "other", owner], "other is not held by"),
    ] {
        let refused = run(&server, arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}");
        assert!(refused.stderr.contains(why), "{arguments:?}: {}", refused.stderr);
    }
    assert_eq!(server.holders("deploy"), [owner]);
    // The former owner has lost the lock to bob.
    client.int("DEL deploy");
    client.int("DLOCK.ACQUIRE deploy bob PX 600000");
    for command in ["renew", "release"] {
        assert_eq!(run(&server, &[command, "deploy", owner]).code, Some(1));
    }
    assert_eq!(server.holders("deploy"), ["bob"]);
}

#[test]
fn an_acquisition_waits_or_is_refused_and_names_the_holder() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE deploy alice PX 600000");
    for (options, code) in [(&["--no-wait"][..], 1), (&["--wait", "100ms"], 1), (&["--no-wait", "-E", "9"], 9)] {
        let refused = run(&server, &[&["acquire", "deploy", "--lease", "1h"][..], options].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(code), ""), "{options:?}");
        assert!(refused.stderr.contains("held by alice"), "{}", refused.stderr);
    }
    let mut command = dlock(&server).with(["acquire", "deploy", "--lease", "1h", "--wait", "1m"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waits = Running::start(command);
    soon("it waits", || server.queue("deploy").len() == 1);
    client.int("DLOCK.RELEASE deploy alice");
    let granted: Value = serde_json::from_str(&waits.outcome().stdout).expect("JSON");
    assert_eq!(server.holders("deploy"), [granted["owner"].as_str().expect("an owner")]);
}

#[test]
fn an_acquisition_that_is_interrupted_or_cannot_print_holds_nothing() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE deploy alice PX 600000");
    let mut waits = Running::start(dlock(&server).with(["acquire", "deploy", "--lease", "1h"]));
    soon("it waits", || server.queue("deploy").len() == 1);
    waits.signal(libc::SIGTERM);
    assert_eq!(waits.outcome().signal, Some(libc::SIGTERM));
    soon("it has left", || server.queue("deploy").is_empty());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
    let mut command = dlock(&server).with(["acquire", "free", "--lease", "1h"]);
    command.stdout(full);
    assert_eq!(Running::start(command).outcome().code, Some(74));
    assert!(server.holders("free").is_empty(), "nobody knows its owner");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = dlock(&server).with(["acquire", "free", "--lease", "1h"]);
    command.stdout(writer);
    assert_eq!(Running::start(command).outcome().code, Some(74));
    assert!(server.holders("free").is_empty(), "nobody knows its owner");
}

#[test]
fn the_environment_names_the_owner_to_the_next_step() {
    let server = Server::start();
    let script = "lock=$(dlock acquire \"it's a $HOME\" --lease 1h --label \"o'brien\" --env) || exit 9
        eval \"$lock\"; dlock info \"it's a $HOME\" >/dev/null || exit 8
        echo \"$DLOCK_NAME|$DLOCK_OWNER|$DLOCK_TOKEN\"
        dlock renew \"$DLOCK_NAME\" --lease 2h || exit 7
        dlock release \"$DLOCK_NAME\" || exit 6
        dlock release \"$DLOCK_NAME\"; echo $?";
    let done = shell(&server, script);
    assert_eq!(done.code, Some(0), "{done:?}");
    let home = std::env::var("HOME").unwrap_or_default();
    assert!(done.stdout.starts_with(&format!("it's a {home}|o'brien:")) && done.stdout.ends_with("\n1\n"), "{done:?}");
    // With an owner as an argument, `DLOCK_TOKEN` is ignored: that token belongs to `DLOCK_OWNER`.
    server.client().int("DLOCK.ACQUIRE job bob PX 600000");
    let done = shell(&server, "DLOCK_OWNER=alice DLOCK_TOKEN=5 dlock release job bob");
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn lines_of_a_file_are_read_alike_by_a_shell_and_by_a_runner() {
    let server = Server::start();
    let label = "run 4711 of o'brien; $HOME";
    let lines = run(&server, &["acquire", "job:1", "--lease", "1h", "--label", label, "--env=file"]).stdout;
    let raw: Vec<_> = lines.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(raw.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["DLOCK_NAME", "DLOCK_OWNER", "DLOCK_TOKEN"]);
    assert!(raw[1].1.starts_with("run-4711-of-o-brien---HOME:"), "{lines}");
    assert_eq!(server.holders("job:1"), [raw[1].1]);
    let notes = Notes::new();
    std::fs::write(notes.path("lock"), &lines).expect("a file");
    let read = format!("set -a; . {}; echo \"$DLOCK_NAME|$DLOCK_OWNER|$DLOCK_TOKEN\"; ", notes.path("lock").display());
    let sourced = shell(&server, &(read + "dlock release \"$DLOCK_NAME\""));
    assert_eq!((sourced.code, sourced.stdout), (Some(0), format!("{}|{}|{}\n", raw[0].1, raw[1].1, raw[2].1)));
    // A name is not changed, so one that would need quotes is refused.
    for name in ["a b", "it's", "$HOME", "a\nb", "#job"] {
        let refused = run(&server, &["acquire", name, "--lease", "1h", "--env=file"]);
        assert_eq!(refused.code, Some(64), "{name}: {}", refused.stderr);
    }
    // A file of `--env` is for shells only, and has values in quotes.
    let file = notes.path("shell").display().to_string();
    let done = shell(&server, &format!("dlock acquire 'it is' --lease 1h --label 'a b' --env > {file}"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let done =
        shell(&server, &format!(". {file}; dlock renew \"$DLOCK_NAME\" --lease 2h && dlock release \"$DLOCK_NAME\""));
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// A name may have any bytes, such as control characters or an incomplete UTF-8 sequence.
#[test]
fn a_shell_reads_the_bytes_of_the_name() {
    let server = Server::start();
    for name in [r"a\302\205b", r"\377\376", r"it\047s", r"a\nb\\\177"] {
        let script = "lock=$(dlock acquire \"$name\" --lease 1h --env) && eval \"$lock\" && \
                      [ \"$DLOCK_NAME\" = \"$name\" ] && dlock release \"$name\"";
        let done = shell(&server, &format!("name=$(printf '{name}'); {script}"));
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
    }
}

/// The lock is gone: another program has overwritten its key.
#[test]
fn a_key_of_another_type_is_not_held() {
    let (server, mut client) = Server::start().with_client();
    client.ok("SET deploy x");
    for arguments in [&["renew", "deploy", "alice"][..], &["release", "deploy", "alice", "--token", "7"]] {
        let done = run(&server, arguments);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.starts_with("dlock: deploy is not held by alice"), "{done:?}");
    }
}

#[test]
fn an_acquisition_with_a_closed_output_holds_nothing_and_one_into_dev_null_does() {
    let server = Server::start();
    let closed = shell(&server, "exec dlock acquire deploy --lease 1h >&-");
    assert_eq!(closed.code, Some(74), "{closed:?}");
    assert!(server.holders("deploy").is_empty(), "nobody knows its owner");
    for (name, void) in [("one", ">/dev/null"), ("two", "1<>/dev/null")] {
        let held = shell(&server, &format!("exec dlock acquire {name} --lease 1h {void}"));
        assert_eq!((held.code, server.holders(name).len()), (Some(0), 1), "{held:?}");
    }
}

#[test]
fn an_acquisition_in_a_pipe_says_what_it_waits_for() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE deploy vm3:3352:8a19685554eee661 PX 600000");
    let waits = run(&server, &["acquire", "deploy", "--lease", "1h", "--wait", "5s"]);
    let first = waits.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("dlock: waiting for deploy, held by vm3:3352:8a19685554eee661 for "), "{waits:?}");
    assert!(waits.stderr.contains("the lock is held by vm3:3352:8a19685554eee661 for "), "{waits:?}");
    let silent = run(&server, &["acquire", "deploy", "--lease", "1h", "--wait", "1500ms", "--quiet"]);
    assert_eq!((silent.code, silent.stderr.as_str()), (Some(1), ""));
}

#[test]
fn a_refused_renewal_or_release_names_the_whole_owner() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE deploy vm3:3352:8a19685554eee661 PX 600000");
    for command in ["renew", "release"] {
        let refused = run(&server, &[command, "deploy", "vm3:3352"]);
        assert_eq!(refused.code, Some(1));
        assert_eq!(
            refused.stderr, "dlock: deploy is not held by vm3:3352, but by vm3:3352:8a19685554eee661\n",
            "{command}"
        );
    }
    assert_eq!(run(&server, &["release", "deploy", "vm3:3352:8a19685554eee661"]).code, Some(0));
    let free = run(&server, &["release", "deploy", "vm3:3352"]);
    assert_eq!(free.stderr, "dlock: deploy is not held by vm3:3352: it is free\n");
}

#[test]
fn invalid_command_lines_are_refused() {
    let server = Server::start();
    for arguments in [
        &["acquire", "job"][..],
        &["acquire", "job", "--lease", "0"],
        // No time of this lease is left when the client has read the grant.
        &["acquire", "job", "--lease", "1ms"],
        &["acquire", "job", "--lease", "2ms"],
        &["renew", "job", "alice", "--lease", "0"],
        &["renew", "job", "alice", "--lease", "0.4ms"],
        &["acquire", "job", "--lease", "1h", "--label", "a\nb"],
        &["acquire", "a\nb", "--lease", "1h", "--env=file"],
        &["acquire", "job", "--lease", "1h", "-s", "redis://a", "-s", "redis://b", "--longest-lease", "2h"],
        &["renew", "job"],
        &["release", "job"],
    ] {
        let refused = run(&server, arguments);
        assert_eq!(refused.code, Some(64), "{arguments:?}: {}", refused.stderr);
    }
    assert!(server.holders("job").is_empty());
}

/// The block of docs/steps.md that is fenced as `language`.
fn recipe(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/steps.md");
    let text = std::fs::read_to_string(page).expect("a page");
    let begin = format!("\n```{language}\n");
    text.split(&begin).nth(1).and_then(|rest| rest.split("\n```").next()).expect("a block").to_owned()
}

/// The scripts of the steps of a job of GitHub Actions.
fn steps(block: &str) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for line in block.lines() {
        if let Some((_, script)) = line.split_once("run: ") {
            steps.push(script.trim_start_matches('|').to_owned());
        } else if let Some(last) = steps.last_mut().filter(|_| line.starts_with("          ")) {
            *last += &format!("\n{}", line.trim());
        }
    }
    steps
}

#[test]
fn the_steps_of_the_page_for_github_actions_hold_one_lock() {
    let (server, notes) = (Server::start(), Notes::new());
    std::fs::write(notes.path("env"), "").expect("a file");
    let steps = steps(&recipe("yaml"));
    assert!(steps.len() >= 4, "{steps:#?}");
    for (at, step) in steps.iter().enumerate() {
        // The job's own scripts do nothing here.
        let step = step.replace("${{ github.run_id }}", "4711").replace("./", ": ");
        let environment = notes.read("env").lines().map(|line| format!("export '{line}'\n")).collect::<String>();
        let file = format!("GITHUB_ENV='{}'; set -e\n", notes.path("env").display());
        let done = shell(&server, &format!("{environment}{file}{step}"));
        assert_eq!(done.code, Some(0), "{step}: {done:?}");
        let is_held = server.holders("deploy:web").iter().any(|owner| owner.contains("4711"));
        assert_eq!(is_held, at + 1 < steps.len(), "after {step}");
    }
}

#[test]
fn terraform_plans_and_applies_under_one_lock_that_ends_with_the_script() {
    let (server, mut client) = Server::start().with_client();
    let notes = Notes::new();
    // A stand-in that notes whether the lock is held.
    let log = notes.path("log").display().to_string();
    let terraform = format!("terraform() {{ dlock info terraform:prod >/dev/null; echo \"$1 $?\" >>'{log}'; }}\n");
    let script = |before_apply: &str| {
        let recipe = recipe("sh").replace("dlock renew", &format!("{before_apply}\ndlock renew"));
        shell(&server, &format!("USER=alice; {terraform}{recipe}"))
    };
    let done = script("");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    assert_eq!(notes.read("log"), "plan 0\napply 0\n");
    assert!(server.holders("terraform:prod").is_empty());
    // A stranger has taken the lock before the plan is applied.
    let steal = format!(
        "dlock break terraform:prod --yes; {} -p {} DLOCK.ACQUIRE terraform:prod bob PX 600000",
        crate::pages::cli(),
        server.port()
    );
    let lost = script(&steal);
    assert_eq!(lost.code, Some(1), "{lost:?}");
    assert_eq!(notes.read("log"), "plan 0\napply 0\nplan 0\n", "nothing is applied");
    assert_eq!(server.holders("terraform:prod"), ["bob"]);
    client.int("DEL terraform:prod");
}
