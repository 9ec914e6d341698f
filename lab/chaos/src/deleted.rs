//! Locks that a thread of another module deletes while a client waits for them. Each lock is free at once for the first
//! in its queue, and the end of the session that kept the deleted hold does not end the next hold.

use std::io::ErrorKind;
use std::thread::JoinHandle;
use std::time::Duration;

use dlock_testkit::lock::Info;
use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server};

use crate::time::{sleep_ms, wait_until};

/// Requests of two clients: the first gets the lock, the second waits for it.
const KINDS: [(&str, &str); 4] = [
    ("ACQUIRE KEY first PX 120000", "ACQUIRE KEY next PX 60000 BLOCK 0"),
    ("RLOCK KEY first PX 120000 SESSION", "WLOCK KEY next PX 60000 BLOCK 0"),
    ("SACQUIRE KEY first 2 PERMITS 2 PX 120000", "SACQUIRE KEY next 2 PX 60000 BLOCK 0"),
    ("ACQUIRE KEY first PX 120000 SESSION", "MACQUIRE 2 KEY KEY-too next PX 60000 BLOCK 0"),
];

/// Clients that wait for locks that were deleted, each in a thread.
#[derive(Default)]
pub struct Waiters {
    threads: Vec<JoinHandle<Option<String>>>,
    keys: Vec<String>,
}

impl Waiters {
    /// Takes a lock, begins to wait for it, and has the other module delete it. Returns whether it was deleted; true,
    /// too, if a fault keeps clients from taking the lock.
    pub fn delete(&mut self, server: &Server) -> bool {
        let number = self.keys.len();
        let Some((first, next)) = KINDS.get(number % KINDS.len()) else { return false };
        let key = format!("{{c}}gone-{number}");
        let mut holder = server.client();
        let taken = holder.outcome(format!("DLOCK.{}", first.replace("KEY", &key)));
        self.keys.push(key.clone());
        if !matches!(taken, Ok(Ok(Value::Int(_)))) {
            return true;
        }
        let mut admin = server.client();
        let (port, request) = (server.port(), format!("DLOCK.{}", next.replace("KEY", &key)));
        let gone = key.clone();
        self.threads.push(std::thread::spawn(move || wait(port, holder, &request, &gone)));
        wait_until(QUEUE_MS, || match admin.outcome(format!("DLOCK.INFO {key}")) {
            Ok(Ok(info)) => info != Value::Nil && Info::of(&info).waiters == 1,
            _ => false,
        });
        by_thread(&mut admin, &key)
    }

    /// Has a lock of each kind deleted while there is no fault. Returns all violations, and leaves no lock.
    pub fn finish(&mut self, server: &Server) -> Vec<String> {
        let before = self.threads.len();
        let deletes = KINDS.iter().all(|_| self.delete(server)) && self.threads.len() == before + KINDS.len();
        let mut found: Vec<String> = self
            .threads
            .drain(..)
            .filter_map(|thread| thread.join().unwrap_or_else(|_| Some(PANICKED.to_owned())))
            .collect();
        if !deletes {
            found.push("a lock cannot be taken, or the other module deletes nothing".to_owned());
        }
        let mut admin = server.client();
        self.keys.drain(..).for_each(|key| drop(admin.run(format!("DEL {key} {key}-too"))));
        found
    }
}

/// Has a thread of the other module delete a key. Returns whether it did.
pub fn by_thread(client: &mut Client, key: &str) -> bool {
    let before = client.int("DELETER.DELETED");
    client.ok(format!("DELETER.DELETE {key}"));
    wait_until(PATIENCE_MS, || client.int("DELETER.DELETED") > before)
}

/// Waits for a lock that is deleted meanwhile. Returns a violation. A fault may make the server refuse, go away, or give
/// the slot away.
fn wait(port: u16, holder: Client, request: &str, key: &str) -> Option<String> {
    let mut client = Client::connect(port).ok()?;
    let token = match client.outcome_within(SERVED, request) {
        Ok(Ok(Value::Int(token))) => token,
        Ok(Ok(reply)) => return Some(format!("`{request}` of a lock that was deleted got {reply:?}")),
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
            return Some(format!("`{request}` still waits {SERVED:?} after a thread of a module deleted the lock"));
        }
        Ok(Err(error)) if !OF_FAULTS.iter().any(|code| error.starts_with(code)) => {
            return Some(format!("`{request}` of a lock that was deleted got {error}"));
        }
        Ok(Err(_)) | Err(_) => return None,
    };
    drop(holder);
    for _ in 0..LOOKS {
        sleep_ms(10);
        if matches!(client.outcome(format!("DLOCK.CHECK {key} {token}")), Ok(Ok(Value::Nil))) {
            return Some(format!("`{request}` got {token}, and lost it with the session of the hold that was deleted"));
        }
    }
    [key.to_owned(), format!("{key}-too")].iter().for_each(|key| {
        // A release may fail: `finish` deletes the lock.
        let _ = client.outcome(format!("DLOCK.RELEASE {key} next ALL"));
    });
    None
}

const PANICKED: &str = "a client that waited for a lock that was deleted panicked: its message is above";
/// The errors of a server on which a fault was inflicted.
const OF_FAULTS: [&str; 7] = ["UNBLOCKED", "READONLY", "LOADING", "OOM", "MOVED", "TRYAGAIN", "CLUSTERDOWN"];
/// How long a request may take to get into the queue. If it comes later, the lock is free.
const QUEUE_MS: u64 = 2000;
/// How long the other module may take.
const PATIENCE_MS: u64 = 60_000;
/// How long a waiter may take to get what is free, on a busy machine and while faults last.
const SERVED: Duration = Duration::from_secs(20);
/// How often the new hold is checked after the session of the deleted hold has ended.
const LOOKS: usize = 20;
