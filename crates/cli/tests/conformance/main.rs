//! The conformance suite of all clients (`tests/conformance`), played against `dlock run`.
//!
//! Without arguments, this program starts the suite with itself as the adapter. With the argument `adapter`, it is the
//! adapter. A lock is held by a process `dlock run NAME -- …` whose command prints the token, and ends with its input:
//! closing the input releases the lock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use dlock_testkit::conformance::{self, Suite, say};
use dlock_testkit::process::{die_with_the_tests, hear_all_signals, spawn};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The scenarios that the command plays. A session is a lease here, and a lease is at least 3 s and renewed.
const PLAYED: [&str; 23] = [
    "cancel",
    "cancel_at_every_point",
    "cap",
    "demoted",
    "demoted_before_wait",
    "failover",
    "lost_reply",
    "module_missing",
    "outage_cancel",
    "outage_down",
    "outage_failover",
    "outage_hang",
    "outage_killed",
    "outage_limit",
    "overwritten",
    "read_write",
    "replicas",
    "replicas_limit",
    "replicas_repeated",
    "server_down",
    "slot",
    "switched",
    "wait_0",
];

/// The scenarios that need what the command lacks.
const LEFT_OUT: [(&str, &str); 8] = [
    ("demoted_until_limit", "a release after the end of its process"),
    ("grant", "a lease under 3 s that is not renewed"),
    ("loss", "a lease under 3 s that is not renewed, sessions"),
    ("named_session", "sessions"),
    ("refused_release", "sessions"),
    ("renewal", "a renewal by hand"),
    ("session", "sessions"),
    ("wait", "a lease under 3 s that is not renewed"),
];

fn main() {
    conformance::main(adapter, play);
}

fn play(suite: &Suite) {
    every_scenario_is_named(&suite.scenarios());
    for (scenario, lacking) in LEFT_OUT {
        println!("dlock run {scenario}: left out: {lacking}");
    }
    let failed = suite.failed(&PLAYED, "dlock run");
    assert!(failed.is_empty(), "{failed:?}");
}

/// Fails if a scenario is neither played nor left out for a reason.
fn every_scenario_is_named(folder: &str) {
    let files = std::fs::read_dir(folder).expect("the scenarios");
    let names = files.map(|file| file.expect("a file").path()).map(|path| {
        let name = path.file_stem().expect("a name");
        name.to_string_lossy().into_owned()
    });
    let named = PLAYED.into_iter().chain(LEFT_OUT.map(|(name, _)| name)).map(str::to_owned);
    assert_eq!(names.collect::<BTreeSet<_>>(), named.collect::<BTreeSet<_>>());
}

/// A run of `dlock run`.
#[derive(Default)]
struct Run {
    /// The id of the process.
    id: i32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stdin: Option<ChildStdin>,
    is_granted: bool,
    is_canceled: bool,
    /// The exit code, and the text on standard error.
    ended: Option<(Option<i32>, String)>,
}

impl Run {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("a lock")
    }

    /// Waits for the end of the process.
    fn ended(&self) -> (Option<i32>, String) {
        let state = self.changed.wait_while(self.state(), |state| state.ended.is_none()).expect("a lock");
        state.ended.clone().expect("just seen")
    }
}

/// Executes requests. Starts all processes on this thread, because they die with the thread that starts them.
fn adapter() {
    let mut runs: HashMap<String, Arc<Run>> = HashMap::new();
    // A letter names a lock. Its earlier runs are kept, because the end of their input would release their locks.
    let mut before = Vec::new();
    let features = ["cancel", "outage", "leases", "slots"];
    say(&json!({"features": features}));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).expect("a request");
        let lock = request["lock"].as_str().expect("a letter").to_owned();
        let (run, answer): (_, fn(&Run) -> Value) = match request["do"].as_str() {
            Some("acquire") => {
                let (child, run) = start(&request);
                before.extend(runs.insert(lock, run.clone()));
                let id = request["id"].clone();
                thread::spawn(move || follow(child, &run, &id));
                continue;
            }
            Some("cancel") => (runs.get(&lock), cancel),
            Some("release") => (runs.get(&lock), release),
            Some("lost") => (runs.get(&lock), lost),
            other => panic!("{other:?}: the scenario is not for this adapter"),
        };
        let (run, id) = (run.cloned().expect("a lock"), request["id"].clone());
        thread::spawn(move || {
            let mut answer = answer(&run);
            answer["id"] = id;
            say(&answer);
        });
    }
}

fn start(request: &Value) -> (Child, Arc<Run>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    let millis = |value: &Value| value.as_u64().map(|time| format!("{time}ms"));
    command.env_remove("DLOCK_URL").args(["-s", &format!("redis://127.0.0.1:{}", request["port"]), "run"]);
    command.args(["--lease", &format!("{}ms", request["lease"].as_u64().expect("a lease").max(3000))]);
    match millis(&request["wait"]) {
        Some(wait) if wait == "0ms" => _ = command.arg("--no-wait"),
        Some(wait) => _ = command.args(["--wait", &wait]),
        None => {}
    }
    if let Some(outage) = millis(&request["outage"]) {
        command.args(["--outage", &outage]);
    }
    if request["replicas"] != 0 {
        let timeout = millis(&request["replicas_timeout"]).expect("a time");
        command.args(["--replicas", &request["replicas"].to_string(), "--replicas-timeout", &timeout]);
    }
    if request["mode"] == "read" {
        command.arg("--shared");
    }
    if let Some(limit) = request["slots"].as_u64() {
        command.args(["--limit", &limit.to_string(), "--slot"]);
    }
    let script = "echo $DLOCK_TOKEN $DLOCK_SLOT; exec cat";
    command.args([request["name"].as_str().expect("a name"), "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_the_tests(&mut command);
    hear_all_signals(&mut command);
    let mut child = spawn(command);
    let run = Run { id: i32::try_from(child.id()).expect("an id"), ..Run::default() };
    run.state().stdin = child.stdin.take();
    (child, Arc::new(run))
}

/// Answers the request to acquire, and records the end of the process.
fn follow(mut child: Child, run: &Run, id: &Value) {
    let mut words = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    output.read_line(&mut words).expect("readable output");
    let mut words = words.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    let (token, slot) = (words.next(), words.next());
    if let Some(token) = token {
        run.state().is_granted = true;
        say(&json!({"id": id, "result": "granted", "token": token, "slot": slot}));
    }
    let mut told = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("readable output");
    let code = child.wait().expect("a process that can be waited for").code();
    if token.is_none() {
        // 1 and 69 are exit codes of `dlock run`: not granted, and no server answers or can be used.
        let result = match code {
            _ if run.state().is_canceled => "canceled",
            Some(1) => "refused",
            Some(69) if told.contains("replicas acknowledged in time") => "too-few-replicas",
            Some(69) if told.contains("is the dlock module loaded?") => "no-module",
            Some(69) if told.contains("no server answers") => "unreachable",
            _ => "error",
        };
        say(&json!({"id": id, "result": result, "message": told}));
    }
    run.state().ended = Some((code, told));
    run.changed.notify_all();
}

fn cancel(run: &Run) -> Value {
    let mut state = run.state();
    // After the grant, `dlock run` would pass the signal on to its command.
    if !state.is_granted && state.ended.is_none() {
        state.is_canceled = true;
        kill(Pid::from_raw(run.id), Signal::SIGINT).expect("a process that has not been waited for");
    }
    json!({"result": "ok"})
}

/// Closes the input, so that the command ends. The exit code 75 says that the lock was lost.
fn release(run: &Run) -> Value {
    drop(run.state().stdin.take());
    let (code, told) = run.ended();
    let result = match code {
        Some(0) if told.contains("not released") => "failed",
        Some(0) => "released",
        Some(75) => "lost",
        _ => "failed",
    };
    json!({"result": result, "message": told})
}

fn lost(run: &Run) -> Value {
    let (code, told) = run.ended();
    json!({"result": if code == Some(75) { "lost" } else { "error" }, "message": told})
}
