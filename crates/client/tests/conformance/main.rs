//! The conformance suite of all clients (`tests/conformance`), played against the client in Rust.
//!
//! Without arguments, this program starts the suite with itself as the adapter. With the argument `adapter`, it is the
//! adapter.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::collections::HashMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_client::{Client, Error, Guard, Session};
use dlock_testkit::conformance::{self, Suite, say};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

fn main() {
    conformance::main(adapter, play);
}

fn play(suite: &Suite) {
    let files = std::fs::read_dir(suite.scenarios()).expect("the scenarios");
    let stem = |path: PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let mut scenarios: Vec<_> = files.map(|file| stem(file.expect("a file").path())).collect();
    scenarios.sort();
    let failed = suite.failed(&scenarios.iter().map(String::as_str).collect::<Vec<_>>(), "Rust");
    assert!(failed.is_empty(), "{failed:?}");
}

/// The lock behind a letter of a scenario.
#[derive(Default)]
struct Entry {
    guard: Option<Arc<Guard>>,
    cancel: Option<AbortHandle>,
    /// The earlier locks of this letter. They are kept, because a guard that is dropped releases its lock.
    before: Vec<Arc<Guard>>,
}

type Locks = Arc<Mutex<HashMap<String, Entry>>>;

/// The session of all locks with `named`, and its client.
static NAMED: tokio::sync::Mutex<Option<(Client, Session)>> = tokio::sync::Mutex::const_new(None);

/// The timeout of that session.
const TIMEOUT: Duration = Duration::from_secs(10);

fn adapter() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let locks = Locks::default();
    let features = ["cancel", "outage", "named", "slots"];
    say(&json!({"features": features}));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).expect("a request");
        runtime.spawn(handle(locks.clone(), request));
    }
}

async fn handle(locks: Locks, request: Value) {
    let lock = request["lock"].as_str().expect("a letter").to_owned();
    let mut answer = match request["do"].as_str() {
        Some("acquire") => acquire(&locks, &lock, &request).await,
        Some("cancel") => {
            let cancel = locks.lock().expect("a lock").get(&lock).and_then(|entry| entry.cancel.clone());
            cancel.inspect(AbortHandle::abort);
            json!({"result": "ok"})
        }
        Some("release") => release(&locks, &lock).await,
        Some("extend") => match guard(&locks, &lock) {
            Some(guard) => result("extended", guard.extend(millis(&request["lease"])).await),
            None => json!({"result": "lost"}),
        },
        Some("lost") => {
            // The future does not keep the guard, which may be released meanwhile.
            let lost = guard(&locks, &lock).map(|guard| guard.lost());
            if let Some(lost) = lost {
                lost.await;
            }
            json!({"result": "lost"})
        }
        other => json!({"result": "error", "message": format!("{other:?}")}),
    };
    answer["id"] = request["id"].clone();
    say(&answer);
}

async fn acquire(locks: &Locks, lock: &str, request: &Value) -> Value {
    let mut client = Client::open(&format!("redis://127.0.0.1:{}", request["port"])).expect("a URL");
    let mut named = None;
    if request["named"] == true {
        let mut kept = NAMED.lock().await;
        // A session that has ended is replaced by a new one.
        kept.take_if(|(_, session)| !session.is_open());
        if kept.is_none() {
            match Session::open(&client, TIMEOUT).await {
                Ok(session) => *kept = Some((client, session)),
                Err(error) => return failed(&error, "error"),
            }
        }
        let (of_session, session) = kept.clone().expect("just opened");
        (client, named) = (of_session, Some(session));
    }
    let name = request["name"].as_str().expect("a name");
    let acquire = match request["mode"].as_str() {
        Some("read") => client.read(name),
        Some("write") => client.write(name),
        _ => match request["slots"].as_u64().and_then(|limit| u32::try_from(limit).ok()) {
            Some(limit) => client.semaphore(name, limit).acquire_slot(),
            None => client.acquire(name),
        },
    };
    let replicas = request["replicas"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    let mut acquire = acquire.lease(millis(&request["lease"])).replicas(replicas, millis(&request["replicas_timeout"]));
    if !request["wait"].is_null() {
        acquire = acquire.wait(millis(&request["wait"]));
    }
    if !request["outage"].is_null() {
        acquire = acquire.outage(millis(&request["outage"]));
    }
    if let Some(session) = named {
        acquire = acquire.in_session(&session);
    } else if request["session"] == true {
        acquire = acquire.session();
    } else if request["keep"] != true {
        acquire = acquire.no_renewal();
    }
    let task = tokio::spawn(acquire.into_future());
    {
        let mut locks = locks.lock().expect("a lock");
        let entry = locks.entry(lock.to_owned()).or_default();
        entry.before.extend(entry.guard.take());
        entry.cancel = Some(task.abort_handle());
    }
    match task.await {
        Ok(Ok(guard)) => {
            let (token, slot) = (guard.token(), guard.slot());
            locks.lock().expect("a lock").entry(lock.to_owned()).or_default().guard = Some(Arc::new(guard));
            json!({"result": "granted", "token": token, "slot": slot})
        }
        Ok(Err(error)) => failed(&error, "error"),
        Err(_) => json!({"result": "canceled"}),
    }
}

async fn release(locks: &Locks, lock: &str) -> Value {
    let guard = locks.lock().expect("a lock").get_mut(lock).and_then(|entry| entry.guard.take());
    let Some(mut guard) = guard else { return json!({"result": "failed"}) };
    // A step that extends the lock may still use the guard.
    let guard = loop {
        match Arc::try_unwrap(guard) {
            Ok(guard) => break guard,
            Err(shared) => guard = shared,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    result("released", guard.release().await)
}

fn guard(locks: &Locks, lock: &str) -> Option<Arc<Guard>> {
    locks.lock().expect("a lock").get(lock).and_then(|entry| entry.guard.clone())
}

fn result(name: &str, outcome: Result<(), Error>) -> Value {
    match outcome {
        Ok(()) => json!({"result": name}),
        Err(error) => failed(&error, "failed"),
    }
}

/// Returns the suite's name of an error. `otherwise` is the name of an error whose name depends on the request.
fn failed(error: &Error, otherwise: &str) -> Value {
    let name = match error {
        Error::Contention => "refused",
        Error::Lost => "lost",
        Error::TooFewReplicas { .. } => "too-few-replicas",
        Error::Refused(cause) if cause.is_module_missing() => "no-module",
        Error::Unreachable(_) if otherwise == "error" => "unreachable",
        _ => otherwise,
    };
    json!({"result": name, "message": error.to_string()})
}

fn millis(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().expect("milliseconds"))
}
