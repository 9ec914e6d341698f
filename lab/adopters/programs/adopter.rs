//! A program that uses the Rust client as docs/rust.md says. lab/adopters/README.md describes its roles and its output.
//! Usage: rust-adopter ROLE NAME

use std::fs::{self, OpenOptions};
use std::future::ready;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_client::{Acquire, Client, Error, Guard, blocking};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The values that all workers share.
#[derive(Clone)]
struct Program {
    client: Client,
    name: String,
    ledger: PathBuf,
    replicas: u32,
    numbers: Arc<AtomicU64>,
    stopping: watch::Receiver<bool>,
}

/// The reason why the work has not been done.
enum Failure {
    Package(Error),
    /// The work has stopped because its lock is lost.
    Abandoned,
    Database(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Package(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Database(error)
    }
}

/// An acquisition, by its number. Its events are written to the standard output, for `run.py`, which judges them.
struct Visit(u64);

impl Visit {
    fn asks(program: &Program, lock: &str, lease: u64, wait: i64, limit: Option<u32>) -> Self {
        let visit = Self(program.numbers.fetch_add(1, Ordering::SeqCst) + 1);
        let mut told = json!({"lock": lock, "lease": lease, "wait": wait});
        if let (Some(limit), Some(told)) = (limit, told.as_object_mut()) {
            told.insert("limit".into(), json!(limit));
        }
        visit.tell("asking", [micros(), micros()], told);
        visit
    }

    /// Writes an event that was observed between these two times.
    fn tell(&self, event: &str, at: [i64; 2], fields: Value) {
        let mut line = json!({"event": event, "id": self.0, "at": at});
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        let mut out = io::stdout().lock();
        // After the run, nobody reads the output. The error does not matter then.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }

    fn enters(&self, guard: &Guard, lost: bool) {
        let before = micros();
        let remaining = millis(guard.remaining());
        let mut told = json!({"remaining": remaining, "lost": lost, "token": guard.token()});
        if let (Some(slot), Some(told)) = (guard.slot(), told.as_object_mut()) {
            told.insert("slot".into(), json!(slot));
        }
        self.tell("inside", [before, micros()], told);
    }

    /// Writes what the guard says, and returns whether the lock is held.
    async fn holds(&self, event: &str, guard: &Guard) -> bool {
        let before = micros();
        let remaining = guard.remaining();
        let lost = tokio::select! { biased; () = guard.lost() => true, () = ready(()) => false };
        self.tell(event, [before, micros()], json!({"remaining": millis(remaining), "lost": lost}));
        !remaining.is_zero() && !lost
    }

    /// Works for this time, and looks at the lock every 100 ms. Stops if the lock is lost.
    async fn works(&self, guard: &Guard, time: Duration) -> Result<(), Failure> {
        let ends = Instant::now() + time;
        while Instant::now() < ends {
            tokio::select! {
                () = guard.lost() => {}
                () = sleep(Duration::from_millis(100).min(ends - Instant::now())) => {}
            }
            if !self.holds("still", guard).await {
                return Err(Failure::Abandoned);
            }
        }
        Ok(())
    }

    /// Writes how the acquisition has ended.
    fn ended(&self, result: Result<(), Failure>, left: Value) {
        let (kind, message) = match result {
            Ok(()) => return self.tell("left", [micros(), micros()], left),
            Err(Failure::Abandoned) => ("abandoned", String::new()),
            Err(Failure::Database(error)) => ("io::Error", error.to_string()),
            Err(Failure::Package(error)) => (kind(&error), error.to_string()),
        };
        self.tell("error", [micros(), micros()], json!({"type": kind, "message": message}));
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Contention => "Error::Contention",
        Error::Unreachable(_) => "Error::Unreachable",
        Error::TooFewReplicas { .. } => "Error::TooFewReplicas",
        Error::Lost => "Error::Lost",
        Error::Refused(_) => "Error::Refused",
        _ => "Error",
    }
}

impl Program {
    /// A web handler: pays an order, which other programs may be asked to pay at the same time. There is an order for
    /// each half second, and it may be up to two half seconds old. The handler uses the blocking client.
    fn pay(&self, client: &blocking::Client) {
        std::thread::sleep(between(50, 250));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let order = u64::try_from(now.as_millis()).unwrap_or(0) / 500 - random() % 3;
        let lock = format!("pay:{order}");
        let visit = Visit::asks(self, &lock, 3000, 1000, None);
        visit.ended(self.paid(client, &visit, &lock, order), json!({}));
    }

    fn paid(&self, client: &blocking::Client, visit: &Visit, lock: &str, order: u64) -> Result<(), Failure> {
        let guard = client.lock(|client| {
            let acquire = client.acquire(lock).lease(Duration::from_secs(3)).wait(Duration::from_secs(1)).no_renewal();
            self.replicated(acquire)
        })?;
        visit.enters(&guard, guard.is_lost());
        let paid = self.charge(visit, &guard, &self.ledger.join(order.to_string()));
        holds_blocking(visit, "leaving", &guard);
        guard.release()?;
        paid
    }

    /// Pays an order unless it is paid. The file plays a database. A real one refuses a row whose token is lower than
    /// one that it has; the file keeps such a row, and ../rules.py leaves it out.
    fn charge(&self, visit: &Visit, guard: &blocking::Guard, order: &PathBuf) -> Result<(), Failure> {
        let mut rows = OpenOptions::new().append(true).create(true).open(order)?;
        rows.write_all(format!("begin {} {}\n", guard.token(), self.name).as_bytes())?;
        if fs::read_to_string(order)?.contains("paid ") {
            return Ok(());
        }
        std::thread::sleep(between(20, 150)); // The time of the call to the payment provider.
        if !holds_blocking(visit, "still", guard) {
            return Err(Failure::Abandoned);
        }
        Ok(rows.write_all(format!("paid {} {}\n", guard.token(), self.name).as_bytes())?)
    }

    /// A worker of a pool: jobs of one customer run one at a time.
    async fn serve(&self) {
        let customer = format!("customer:{}", random() % 4);
        let visit = Visit::asks(self, &customer, 2000, 2000, None);
        let acquire = self.client.acquire(&customer).wait(Duration::from_secs(2));
        let time = (0..=random() % 6).map(|_| between(50, 400)).sum();
        visit.ended(self.inside(&visit, acquire, time).await, json!({}));
    }

    /// A job on one of three GPUs. The number of the permit is that of the GPU, which no other job has.
    async fn compute(&self) {
        let visit = Visit::asks(self, "gpu", 2000, 2000, Some(3));
        let acquire = self.client.semaphore("gpu", 3).acquire_slot().wait(Duration::from_secs(2));
        visit.ended(self.inside(&visit, acquire, between(100, 1500)).await, json!({}));
    }

    /// Acquires the lock, does the work, and releases the lock.
    async fn inside(&self, visit: &Visit, acquire: Acquire, time: Duration) -> Result<(), Failure> {
        let guard = self.replicated(acquire.lease(Duration::from_secs(2))).await?;
        visit.enters(&guard, !guard.is_held());
        let done = visit.works(&guard, time).await;
        visit.holds("leaving", &guard).await;
        guard.release().await?;
        done
    }

    /// A candidate of an election. Leads until the lock is lost, 1 to 6 s have passed, or the program stops.
    async fn stand(&self) {
        let visit = Visit::asks(self, "leader", 2000, -1, None);
        let mut stopping = self.stopping.clone();
        let acquire = self.replicated(self.client.acquire("leader").lease(Duration::from_secs(2)));
        let granted = tokio::select! {
            granted = acquire => granted,
            _ = stopping.wait_for(|stopping| *stopping) => return visit.tell("canceled", [micros(), micros()], json!({})),
        };
        let led = match granted {
            Ok(guard) => {
                visit.enters(&guard, !guard.is_held());
                let led = tokio::select! {
                    led = visit.works(&guard, between(1000, 6000)) => led,
                    _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
                };
                visit.holds("leaving", &guard).await;
                guard.release().await.map_err(Failure::Package).and(led)
            }
            Err(error) => Err(error.into()),
        };
        visit.ended(led, json!({}));
        sleep(Duration::from_millis(100)).await;
    }

    /// A job that each machine starts every 4 s, up to 30 ms late. The lock stays for nine tenths of that.
    async fn report(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() % 4000;
        let next = Duration::from_millis(4000 - u64::try_from(now).unwrap_or(0)) + between(0, 30);
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = sleep(next) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        // The event's `lease` is how long the lock stays: nine tenths of the period.
        let visit = Visit::asks(self, "report", 3600, 0, None);
        let acquire = self.client.try_acquire("report").at_least(Duration::from_millis(3600));
        match self.inside(&visit, acquire, between(100, 500)).await {
            Err(Failure::Package(Error::Contention)) => visit.tell("refused", [micros(), micros()], json!({})),
            done => visit.ended(done, json!({"kept": true})),
        }
    }

    fn replicated(&self, acquire: Acquire) -> Acquire {
        if self.replicas > 0 { acquire.replicas(self.replicas, Duration::from_secs(1)) } else { acquire }
    }

    async fn runs(self, role: String) {
        while !*self.stopping.borrow() {
            match role.as_str() {
                "pool" => self.serve().await,
                "election" => self.stand().await,
                "slots" => self.compute().await,
                _ => self.report().await,
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Does what [`Visit::holds`] does, without tokio.
fn holds_blocking(visit: &Visit, event: &str, guard: &blocking::Guard) -> bool {
    let before = micros();
    let (remaining, lost) = (guard.remaining(), guard.is_lost());
    visit.tell(event, [before, micros()], json!({"remaining": millis(remaining), "lost": lost}));
    !remaining.is_zero() && !lost
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn between(least: u64, most: u64) -> Duration {
    Duration::from_millis(least + random() % (most - least))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (role, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let ports = variable("ADOPTER_PORTS");
    let servers = ports.split(',').map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
    let is_sentinel = variable("ADOPTER_BY") == "sentinel";
    let url = if is_sentinel { format!("redis-sentinel://{servers}/locks") } else { format!("redis://{servers}") };
    let (stop, stopping) = watch::channel(false);
    let program = Program {
        client: Client::open(&url)?,
        name,
        ledger: variable("ADOPTER_LEDGER").into(),
        replicas: variable("ADOPTER_REPLICAS").parse()?,
        numbers: Arc::default(),
        stopping,
    };
    if role == "web" {
        let client = blocking::Client::new(program.client.clone())?;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !*program.stopping.borrow() {
                        program.pay(&client);
                    }
                });
            }
            until_the_input_closes();
            stop.send(true)
        })?;
        client.block_on(program.client.settled());
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let workers: Vec<_> =
        (0..if role == "pool" { 2 } else { 1 }).map(|_| runtime.spawn(program.clone().runs(role.clone()))).collect();
    until_the_input_closes();
    stop.send(true)?;
    runtime.block_on(async {
        for worker in workers {
            worker.await?;
        }
        program.client.settled().await;
        Ok(())
    })
}

/// Reads the input, which stays empty, until it closes. Then the program stops.
fn until_the_input_closes() {
    let _ = io::stdin().read_to_end(&mut Vec::new());
}
