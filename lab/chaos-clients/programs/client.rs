//! The program of chaos with the Rust client: see ../README.md.

#![allow(clippy::indexing_slicing, reason = "a field that a value of JSON lacks is null, and is made when it is set")]

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_client::{Client, Error, Guard, Session};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

/// The acquisition of one worker.
#[derive(Default)]
struct Worker {
    guard: Option<Guard>,
    lost: Arc<AtomicBool>,
    cancel: Option<AbortHandle>,
    /// Guards that the run has not released. They are kept, because a guard that is dropped releases its lock.
    before: Vec<Guard>,
}

/// The things that all workers share: a client for each database, and its session.
#[derive(Clone, Default)]
struct Program {
    workers: Arc<Mutex<HashMap<String, Worker>>>,
    clients: Arc<Mutex<HashMap<u64, Client>>>,
    sessions: Arc<tokio::sync::Mutex<HashMap<u64, Session>>>,
}

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let program = Program::default();
    say(&json!({"features": ["named", "slots", "replicas", "cancel"]}));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
        let program = program.clone();
        if request["do"] == "acquire" {
            let id = request["id"].clone();
            let task = runtime.spawn(program.clone().acquire(request.clone()));
            program.of(&request, |worker| {
                worker.before.extend(worker.guard.take());
                worker.cancel = Some(task.abort_handle());
            });
            runtime.spawn(async move {
                let canceled = |_| json!({"result": "canceled", "at": [micros(), micros()]});
                answer(&id, task.await.unwrap_or_else(canceled));
            });
        } else {
            runtime.spawn(async move { answer(&request["id"].clone(), program.others(&request).await) });
        }
    }
    Ok(())
}

impl Program {
    async fn acquire(self, request: Value) -> Value {
        match self.granted(&request).await {
            Ok(guard) => {
                let (token, slot, lost) = (guard.token(), guard.slot(), Arc::new(AtomicBool::new(false)));
                let mut told = claim(&guard, &lost);
                told["result"] = json!("granted");
                (told["token"], told["slot"]) = (json!(token), json!(slot));
                let (waiting, flag) = (guard.lost(), lost.clone());
                tokio::spawn(async move {
                    waiting.await;
                    flag.store(true, Ordering::SeqCst);
                });
                self.of(&request, |worker| (worker.guard, worker.lost) = (Some(guard), lost));
                told
            }
            Err(error) => failed(&error, "unreachable"),
        }
    }

    async fn granted(&self, request: &Value) -> Result<Guard, Error> {
        let client = self.client(request)?;
        let name = request["name"].as_str().unwrap_or_default();
        let limit = request["slots"].as_u64().and_then(|limit| u32::try_from(limit).ok());
        let acquire = match (limit, request["mode"].as_str()) {
            (Some(limit), _) => client.semaphore(name, limit).acquire_slot(),
            (None, Some("read")) => client.read(name),
            (None, Some("write")) => client.write(name),
            _ => client.acquire(name),
        };
        let replicas = request["replicas"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let acquire = acquire.lease(millis(&request["lease"])).wait(millis(&request["wait"]));
        let acquire = acquire.replicas(replicas, Duration::from_secs(1));
        if request["named"] == true {
            let session = self.session(request, &client).await?;
            return acquire.in_session(&session).await;
        }
        if request["keep"] == true { acquire.await } else { acquire.no_renewal().await }
    }

    fn client(&self, request: &Value) -> Result<Client, Error> {
        let db = request["db"].as_u64().unwrap_or(0);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&db) {
            return Ok(client.clone());
        }
        let ports = request["ports"].as_array().into_iter().flatten();
        let addresses: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let addresses = addresses.join(",");
        let client = Client::open(&match request["by"].as_str() {
            Some("sentinel") => format!("redis-sentinel://{addresses}/locks/{db}"),
            Some(_) => format!("redis://{addresses}"),
            None => format!("redis://{addresses}/{db}"),
        })?;
        clients.insert(db, client.clone());
        Ok(client)
    }

    async fn session(&self, request: &Value, client: &Client) -> Result<Session, Error> {
        let db = request["db"].as_u64().unwrap_or(0);
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.get(&db).filter(|session| session.is_open()) {
            return Ok(session.clone());
        }
        let session = Session::open(client, millis(&request["timeout"])).await?;
        sessions.insert(db, session.clone());
        Ok(session)
    }

    /// Executes every request except `acquire`.
    async fn others(&self, request: &Value) -> Value {
        match request["do"].as_str() {
            Some("cancel") => {
                self.of(request, |worker| worker.cancel.take()).inspect(AbortHandle::abort);
                json!({"result": "ok"})
            }
            Some("release") => {
                let Some((guard, lost)) = self.of(request, |worker| Some((worker.guard.take()?, worker.lost.clone())))
                else {
                    return json!({"result": "error", "message": "there is no guard", "at": [micros(), micros()]});
                };
                let mut told = claim(&guard, &lost);
                match guard.release().await {
                    Ok(()) => told["result"] = json!("released"),
                    Err(error) => {
                        let failure = failed(&error, "failed");
                        (told["result"], told["message"]) = (failure["result"].clone(), failure["message"].clone());
                    }
                }
                told
            }
            _ => self.of(request, |worker| {
                let Some(guard) = &worker.guard else { return json!({"result": "error", "message": "no guard"}) };
                let mut told = claim(guard, &worker.lost);
                told["result"] = json!("held");
                told
            }),
        }
    }

    fn of<T>(&self, request: &Value, what: impl FnOnce(&mut Worker) -> T) -> T {
        let name = request["worker"].as_str().unwrap_or_default().to_owned();
        what(self.workers.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default())
    }
}

/// Returns what a guard says of itself, between two times.
fn claim(guard: &Guard, lost: &AtomicBool) -> Value {
    let before = micros();
    let remaining = guard.remaining();
    let lost = lost.load(Ordering::SeqCst);
    json!({"at": [before, micros()], "remaining": remaining.as_secs_f64() * 1000.0, "lost": lost})
}

/// Returns an error as a reply, in which `unreachable` is the result if no server answers.
fn failed(error: &Error, unreachable: &str) -> Value {
    let name = match error {
        Error::Contention => "refused",
        Error::Lost => "lost",
        Error::TooFewReplicas { .. } => "too-few-replicas",
        Error::Unreachable(_) => unreachable,
        _ => "error",
    };
    json!({"result": name, "message": error.to_string(), "at": [micros(), micros()]})
}

fn answer(id: &Value, mut reply: Value) {
    reply["id"] = id.clone();
    say(&reply);
}

fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more when the run is over.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

fn millis(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap_or(0))
}
