//! Clients of all servers that acquire the same new locks during a failover, and the grants that they get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::{Client, soon};
use redis::Value;

/// Clients of each server. The clients with the same number ask for the same names.
const CLIENTS: u64 = 3;
/// How often each asks for another name.
const PERIOD: Duration = Duration::from_millis(10);
/// Longer than any test: no lock lapses.
const LEASE_MS: u64 = 600_000;

/// The suffix of the locks of the client that finds the primary through Sentinel.
const THROUGH: &str = "through-sentinel";

struct Grant {
    port: u16,
    name: String,
    token: i64,
    at: Instant,
}

struct Field {
    begin: Instant,
    /// The hash tag with which all names begin, so that they are in one slot. Empty outside a cluster.
    tag: &'static str,
    is_over: AtomicBool,
    grants: Mutex<Vec<Grant>>,
    /// For each kind of refusal, when it came first and last.
    refusals: Mutex<BTreeMap<String, (Instant, Instant)>>,
}

pub struct Load {
    field: Arc<Field>,
    clients: Vec<JoinHandle<()>>,
}

/// The outcome for the locks.
#[derive(Debug)]
pub struct Figures {
    pub locks: usize,
    /// Granted by two servers.
    pub twice: usize,
    /// Granted, and not held on the new primary.
    pub lost: usize,
    /// From the first grant of the new primary to the last grant of the old one.
    pub old_grants_on_for: Duration,
    /// The longest time in which nobody was granted anything.
    pub nobody_gets_in_for: Duration,
    /// The same of a client that finds the primary through Sentinel.
    pub sentinel_names_nobody_for: Duration,
    /// For how long each kind of refusal came: `nil`, `closed`, or the first word of an error.
    pub refusals: BTreeMap<String, Duration>,
}

impl Load {
    /// Begins, and waits until the primary has granted some.
    #[track_caller]
    pub fn begin(ports: &[u16], tag: &'static str) -> Self {
        let field = Arc::new(Field {
            begin: Instant::now(),
            tag,
            is_over: AtomicBool::new(false),
            grants: Mutex::default(),
            refusals: Mutex::default(),
        });
        let mut clients = Vec::new();
        for port in ports.iter().copied() {
            for number in 0..CLIENTS {
                let field = field.clone();
                clients.push(std::thread::spawn(move || field.ask(|| Some(port), &number.to_string())));
            }
        }
        let load = Self { field, clients };
        load.goes_on();
        load
    }

    /// Adds a client that asks this Sentinel where the primary is.
    pub fn through(mut self, sentinel: u16) -> Self {
        let field = self.field.clone();
        self.clients.push(std::thread::spawn(move || field.ask(|| Sentinels::primary(sentinel), THROUGH)));
        self
    }

    /// Waits until the clients have been granted 100 more locks.
    #[track_caller]
    pub fn goes_on(&self) {
        let count = || self.field.grants.lock().expect("no client has failed").len();
        let before = count();
        soon("locks are granted", || count() > before + 100);
    }

    /// Ends the load, after `old` has handed over to `new`.
    #[track_caller]
    pub fn end(self, old: u16, new: u16) -> Figures {
        self.field.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("a client has failed, see above");
        }
        let mut grants = std::mem::take(&mut *self.field.grants.lock().expect("no client has failed"));
        grants.sort_by_key(|grant| grant.at);
        let mut owners: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
        for grant in &grants {
            owners.entry(&grant.name).or_default().insert(grant.port);
        }
        let mut primary = Client::connect(new).expect("the new primary");
        let lost = |grant: &&Grant| primary.run(format!("DLOCK.CHECK {} {}", grant.name, grant.token)) == Value::Nil;
        let of = |port: u16| grants.iter().filter(move |grant| grant.port == port).map(|grant| grant.at);
        let (last, first) = (of(old).next_back(), of(new).next());
        Figures {
            locks: owners.len(),
            twice: owners.values().filter(|owners| owners.len() > 1).count(),
            lost: grants.iter().filter(lost).count(),
            old_grants_on_for: last.zip(first).map_or(Duration::ZERO, |(last, first)| last.duration_since(first)),
            nobody_gets_in_for: longest_gap(&grants, |_| true),
            sentinel_names_nobody_for: longest_gap(&grants, |name| name.ends_with(THROUGH)),
            refusals: self.field.refusals(),
        }
    }
}

fn owner(port: u16) -> String {
    format!("client-of-{port}")
}

/// The longest time between two grants of such names.
fn longest_gap(grants: &[Grant], wanted: impl Fn(&str) -> bool) -> Duration {
    let times: Vec<_> = grants.iter().filter(|grant| wanted(&grant.name)).map(|grant| grant.at).collect();
    times.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
}

impl Field {
    /// Acquires name after name on the server whose port `place` returns.
    fn ask(&self, place: impl Fn() -> Option<u16>, number: &str) {
        let mut connection: Option<(u16, Client)> = None;
        let mut last = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let turn = self.begin.elapsed().as_millis() / PERIOD.as_millis();
            if last == Some(turn) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            last = Some(turn);
            let Some((port, client)) = &mut connection else {
                connection = place().and_then(|port| Some((port, Client::connect(port).ok()?)));
                continue;
            };
            let port = *port;
            let name = format!("{}{turn}-{number}", self.tag);
            match client.outcome(format!("DLOCK.ACQUIRE {name} {} PX {LEASE_MS}", owner(port))) {
                Ok(Ok(Value::Int(token))) => {
                    let grant = Grant { port, name, token, at: Instant::now() };
                    self.grants.lock().expect("no client has failed").push(grant);
                }
                Ok(Ok(_)) => self.note_refusal("nil"),
                Ok(Err(error)) => {
                    self.note_refusal(error.split(' ').next().expect("a word"));
                    connection = None;
                }
                Err(_) => {
                    self.note_refusal("closed");
                    connection = None;
                }
            }
        }
    }

    fn note_refusal(&self, kind: &str) {
        let (mut refusals, now) = (self.refusals.lock().expect("no client has failed"), Instant::now());
        refusals.entry(kind.to_owned()).or_insert((now, now)).1 = now;
    }

    fn refusals(&self) -> BTreeMap<String, Duration> {
        let refusals = self.refusals.lock().expect("no client has failed");
        refusals.iter().map(|(kind, (first, last))| (kind.clone(), *last - *first)).collect()
    }
}
