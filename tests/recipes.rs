//! The packages in `clients/` and the recipes in `docs/recipes/` do what they promise, each with the real client of its
//! language: `tests/clients/*.sh` and `tests/recipes/*.sh` run them, one script for each language or subject.
//!
//! A script finds an empty server with the module at `DLOCK_TEST_HOST` and `DLOCK_TEST_PORT`, with which it may do what
//! it likes. It ends with 0, or with 77 after a line `missing: what` if the language is not on this machine. A missing
//! language is a failure too (`make test` installs the languages), unless `DLOCK_RECIPES_MISSING_OK=go,erlang` names
//! the script. A missing language is reported past what libtest captures, as are the lines `skipped: test: reason` of a
//! script that passes. `DLOCK_RECIPES=python,node` runs those scripts only.
//!
//! Most of what the packages promise is about time. Scripts run beside each other, and one that starts twenty programs
//! at once takes the cores from the others: a script that failed beside others is run again alone, and the first run is
//! reported, too. The failure of a script that runs alone counts, unless the machine was late, and at the third run in
//! any case: a machine that stops a process for seconds can break a lease of a second.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use dlock_testkit::process::die_with_the_tests;
use dlock_testkit::skip::skipped;
use dlock_testkit::{Server, Stopwatch};

/// The time after which a script counts as hung. On a quiet machine, it takes half a minute to five minutes, most of it
/// waiting; on one that others use, what it compiles takes ten times as long.
const DEADLINE: Duration = Duration::from_secs(1800);
/// How often a script is run at most, on a machine that is late.
const RUNS: usize = 3;
/// The turns of the scripts: shared by those that run beside each other, of both directories; exclusive for one alone.
static TURNS: RwLock<()> = RwLock::new(());
/// How many scripts have begun, and how many of them run.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Whether the scripts of a directory have ended, and the signal that they have.
static ONE_HAS_ENDED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// The exit code that says: not on this machine.
const MISSING: i32 = 77;

/// Parts of the lines that name a failed test: of JUnit, pytest (which begins those of the reason with an `E`),
/// Node.js, Go, compilers, the scripts themselves, `new_user.sh`, and [`run`] at the deadline.
const SIGNS: [&str; 10] = [
    "JUnit Jupiter:",
    "FAILED",
    "✖",
    "not ok ",
    "--- FAIL",
    "panic:",
    "DATA RACE",
    "error:",
    "new_user: ",
    "not done after ",
];
/// How many lines are shown in short of a failed test and its reason.
const REASON: usize = 12;
/// How many lines of the end are shown in short: more would push the reasons out of a record that keeps the last ones.
const END: usize = 3;
/// How many failed tests are named of a script that is run again.
const NAMED: usize = 3;
/// How many lines are shown in short at most, the last ones, and how many characters of each.
const MOST: usize = 120;
const WIDTH: usize = 300;

/// A script that has not passed.
struct Wrong {
    what: String,
    output: String,
}

/// How a script ended.
enum Outcome {
    /// With the tests that the script reported as skipped.
    Passed(Vec<String>),
    Missing(String),
    Failed(String),
}

#[test]
fn the_packages_keep_their_promises() {
    run_all("tests/clients");
}

#[test]
fn every_recipe_does_what_it_shows() {
    run_all("tests/recipes");
}

#[test]
fn every_language_with_recipes_is_run() {
    let directories = std::fs::read_dir(root().join("docs/recipes")).expect("a directory");
    for entry in directories.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()) {
        let script = root().join("tests/recipes").join(name_of(&entry)).with_extension("sh");
        assert!(script.exists(), "{} runs {}", script.display(), entry.display());
    }
}

#[test]
fn a_report_ends_with_the_failed_tests_and_their_reasons() {
    let noise = "storm: 1352 granted, 1053 interrupted\n".repeat(5000);
    for (name, reason) in [
        (
            "  JUnit Jupiter:WaitingTest:order()",
            "    => org.opentest4j.AssertionFailedError: expected: <0> but was: <24>",
        ),
        ("FAILED tests/test_lost.py::test_a_cut[sync]", "E       assert 3 == 4"),
        ("  ✖ closing frees everything (12.75 ms)", "    AssertionError [ERR_ASSERTION]: why"),
        ("    --- FAIL: TestOne/sub (0.00s)", "        a_test.go:3: why"),
        ("Java named_session: FAILED: line 3", "it replied 1"),
    ] {
        let output = format!("{noise}{name}\n{reason}\n{noise}the end");
        let report = report(&[Wrong { what: "java failed after 1.0 s".to_owned(), output }]);
        let (_, short) = report.split_once("in short: java failed").expect("a short form");
        let (named, ended) = (short.find(name), short.ends_with("the end"));
        assert!(ended && named.is_some_and(|at| short[at..].contains(reason)) && short.len() < 2000, "{short}");
    }
    let long = format!("error: {}\n", "x".repeat(5000)).repeat(5000);
    assert!(failures(&long).len() <= MOST * (WIDTH + 1));
}

/// Runs the scripts of a directory, two at a time, and three after those of another have ended: most of their time they
/// wait for leases to end.
fn run_all(directory: &str) {
    let scripts = Mutex::new(scripts(directory).into_iter());
    let next = || scripts.lock().expect("no panic").next();
    let work = || std::iter::from_fn(next).filter_map(|script| wrong_with(&script, directory)).collect::<Vec<_>>();
    let joins_later = || {
        let (has_ended, tells) = &ONE_HAS_ENDED;
        drop(tells.wait_while(has_ended.lock().expect("no panic"), |ended| !*ended).expect("no panic"));
        work()
    };
    // A line of what is skipped begins with the name of its thread.
    let test = std::thread::current().name().unwrap_or(directory).to_owned();
    let wrong = std::thread::scope(|scope| {
        let builder = || std::thread::Builder::new().name(test.clone());
        let start = || builder().spawn_scoped(scope, work).expect("a thread");
        let workers = [start(), start()];
        let third = builder().spawn_scoped(scope, joins_later).expect("a thread");
        let ended = workers.map(std::thread::ScopedJoinHandle::join);
        // The third worker waits for this signal, so it is sent even after a panic.
        *ONE_HAS_ENDED.0.lock().expect("no panic") = true;
        ONE_HAS_ENDED.1.notify_all();
        let all = ended.into_iter().chain([third.join()]);
        all.flat_map(|wrong| wrong.expect("no panic")).collect::<Vec<_>>()
    });
    if !wrong.is_empty() {
        println!("{directory}:\n{}", report(&wrong));
        // Fails the test as a panic does, without a backtrace: the report is then the end.
        std::panic::resume_unwind(Box::new("a script failed"));
    }
}

/// Runs a script, and says why it has not passed.
fn wrong_with(script: &Path, directory: &str) -> Option<Wrong> {
    let name = name_of(script);
    let mut left = RUNS;
    let (outcome, took) = loop {
        let (start, outcome, was_alone) = if left == RUNS { beside(script) } else { alone(script) };
        left -= 1;
        match &outcome {
            Outcome::Failed(output) if left > 0 && (!was_alone || start.was_late()) && start.elapsed() < DEADLINE => {
                let failed = failed_tests(output).take(NAMED).map(str::trim).collect::<Vec<_>>().join("; ");
                let when = if was_alone { "alone" } else { "beside others" };
                let late = start.stalled();
                let why = format!("failed {when} (the machine was {late:.1?} late), and is run again alone: {failed}");
                skipped(&format!("{directory}: {name}: {why}"));
                println!("{directory}: {name} {why}:\n{}", failures(output));
            }
            _ => break (outcome, start.elapsed().as_secs_f32()),
        }
    };
    match outcome {
        Outcome::Passed(left_out) => {
            left_out.iter().for_each(|what| skipped(&format!("{directory}: {name}: {what}")));
            println!("{directory}: {name} passed in {took:.1} s");
            None
        }
        Outcome::Missing(what) => {
            skipped(&format!("{directory}: {name}: missing: {what}"));
            let wrong = || format!("{name}: missing: {what} (DLOCK_RECIPES_MISSING_OK={name} goes without)");
            (!may_be_missing(&name)).then(|| Wrong { what: wrong(), output: String::new() })
        }
        Outcome::Failed(output) => Some(Wrong { what: format!("{name} failed after {took:.1} s"), output }),
    }
}

/// Runs a script beside those of other threads. Says whether it was alone all the time.
fn beside(script: &Path) -> (Stopwatch, Outcome, bool) {
    let _turn = TURNS.read().expect("no panic");
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    let was_first = RUNNING.fetch_add(1, Ordering::SeqCst) == 0;
    let (start, outcome) = (Stopwatch::start(), run(script));
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    let was_last = BEGUN.load(Ordering::SeqCst) == number;
    (start, outcome, was_first && was_last)
}

/// Runs a script when no other runs.
fn alone(script: &Path) -> (Stopwatch, Outcome, bool) {
    let _turn = TURNS.write().expect("no panic");
    (Stopwatch::start(), run(script), true)
}

/// All that the scripts printed, and then, in short, what failed and why: a record that keeps only the end of the
/// output still has that.
fn report(wrong: &[Wrong]) -> String {
    let whole = wrong.iter().map(|one| format!("{}\n{}", one.what, one.output));
    let short = wrong.iter().map(|one| format!("in short: {}\n{}", one.what, failures(&one.output)));
    whole.chain(short).collect::<Vec<_>>().join("\n")
}

/// Whether a line names a failed test or begins its reason.
fn is_sign(line: &str) -> bool {
    SIGNS.iter().any(|sign| line.contains(sign)) || line.starts_with("E  ")
}

/// The lines of an output that name a failed test.
fn failed_tests(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| is_sign(line))
}

/// The lines of an output that name a failed test, each with the lines after it, which give the reason; and its end.
fn failures(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let named = (0..lines.len()).filter(|&at| is_sign(lines[at]));
    let mut shown: BTreeSet<usize> = named.flat_map(|at| at..lines.len().min(at + REASON)).collect();
    shown.extend(lines.len().saturating_sub(END)..lines.len());
    let cut = |&at: &usize| lines[at].chars().take(WIDTH).collect::<String>();
    let last: Vec<_> = shown.iter().skip(shown.len().saturating_sub(MOST)).map(cut).collect();
    last.join("\n")
}

fn may_be_missing(name: &str) -> bool {
    std::env::var("DLOCK_RECIPES_MISSING_OK").is_ok_and(|names| names.split(',').any(|missing| missing == name))
}

/// The scripts, by name; those that `DLOCK_RECIPES` names, if it is set.
fn scripts(directory: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(directory)).expect("a directory");
    let mut scripts: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "sh"));
    if let Ok(wanted) = std::env::var("DLOCK_RECIPES") {
        scripts.retain(|path| wanted.split(',').any(|name| name == name_of(path)));
    }
    // The longest begins first.
    scripts.sort_by_key(|path| (name_of(path) != "python", path.clone()));
    scripts
}

/// Runs a script on a server of its own.
fn run(script: &Path) -> Outcome {
    let server = Server::start();
    let output = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut child = start(script, server.port(), output.as_file());
    let status = wait(&mut child);
    let text = String::from_utf8_lossy(&std::fs::read(output.path()).expect("its output")).into_owned();
    match status.as_ref().map(ExitStatus::code) {
        Some(Some(0)) => {
            let left_out = text.lines().filter_map(|line| line.strip_prefix("skipped: "));
            Outcome::Passed(left_out.map(str::to_owned).collect())
        }
        Some(Some(MISSING)) => {
            let what = text.lines().find_map(|line| line.strip_prefix("missing: "));
            what.map_or_else(|| Outcome::Failed(text.clone()), |what| Outcome::Missing(what.to_owned()))
        }
        Some(_) => Outcome::Failed(text),
        None => Outcome::Failed(format!("not done after {DEADLINE:?}:\n{text}")),
    }
}

/// Starts a script in a process group of its own, so that all it starts can be ended with it.
fn start(script: &Path, port: u16, output: &File) -> Child {
    let mut command = Command::new("bash");
    let file = || Stdio::from(output.try_clone().expect("a second descriptor"));
    command.arg(script).current_dir(root()).stdin(Stdio::null()).stdout(file()).stderr(file()).process_group(0);
    command.env("DLOCK_TEST_HOST", "127.0.0.1").env("DLOCK_TEST_PORT", port.to_string());
    command.env("DLOCK_MODULE", dlock_testkit::process::module_path());
    die_with_the_tests(&mut command);
    command.spawn().expect("bash")
}

/// Waits until a script has ended. `None`: it had not at its deadline, and was killed.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a process that can be waited for") {
            break Some(status);
        }
        if start.elapsed() > DEADLINE {
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let group = i32::try_from(child.id()).expect("a process id");
    // SAFETY: `kill` touches no memory; the group is the child's own: it has the child, if it still runs, and what the
    // child left behind.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    let _ = child.wait();
    status
}

fn name_of(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// The checkout.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
