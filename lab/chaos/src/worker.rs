//! A worker: a process that contends for locks until it is told to finish, or killed.
//!
//! `workload` decides what it does; this file knows how a command is sent, recorded and sent again.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use dlock_testkit::Client;
use dlock_testkit::random::Random;

use crate::control::{Control, Work};
use crate::counters::CounterClient;
use crate::failure::Result;
use crate::history::{Recorder, Reply};
use crate::time::sleep_ms;

/// The options of a worker, as the words of a command line.
#[derive(Clone, Debug, clap::Args)]
pub struct Job {
    /// Where its orders are and its history goes.
    pub dir: PathBuf,
    /// The worker's name, which is also that of its history and the beginning of its owners.
    pub name: String,
    /// From where it connects to the servers.
    pub address: Ipv4Addr,
    pub seed: u64,
    /// The port of the counters.
    pub counters: u16,
    #[arg(value_enum)]
    pub acknowledgement: Acknowledgement,
}

/// Whether grants are followed by `WAIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Acknowledgement {
    Never,
    Often,
}

impl Job {
    pub fn words(&self) -> Vec<String> {
        let acknowledgement = match self.acknowledgement {
            Acknowledgement::Never => "never",
            Acknowledgement::Often => "often",
        };
        let dir = self.dir.display().to_string();
        let [address, seed] = [self.address.to_string(), self.seed.to_string()];
        let counters = self.counters.to_string();
        ["worker", &dir, &self.name, &address, &seed, &counters, acknowledgement].map(str::to_owned).to_vec()
    }

    pub fn history(&self) -> PathBuf {
        self.dir.join(format!("{}.history", self.name))
    }
}

/// A worker at work.
pub struct Worker {
    job: Job,
    control: Control,
    recorder: Recorder,
    connection: Option<Client>,
    connections: u64,
    owners: u64,
    sessions: u64,
    pub counters: CounterClient,
    pub random: Random,
}

impl Worker {
    /// Returns a worker that begins with this job.
    pub fn new(job: Job) -> Result<Worker> {
        Ok(Worker {
            control: Control::in_dir(&job.dir),
            recorder: Recorder::create(&job.history())?,
            connection: None,
            connections: 0,
            owners: 0,
            sessions: 0,
            counters: CounterClient::open(job.counters)?,
            random: Random::of(job.seed, &job.name),
            job,
        })
    }

    /// Returns whether there is more to do.
    pub fn goes_on(&self) -> Result<bool> {
        Ok(self.control.read()?.work == Work::GoOn)
    }

    /// Returns an owner that was never used.
    pub fn fresh_owner(&mut self) -> String {
        self.owners += 1;
        format!("{}-{}", self.job.name, self.owners)
    }

    /// Returns the id of a session that was never used.
    pub fn fresh_session(&mut self) -> String {
        self.sessions += 1;
        format!("s-{}-{}", self.job.name, self.sessions)
    }

    /// Returns the reply to a command; `None` if no server was there, or if the connection ended first, so that nobody
    /// knows what became of the command.
    pub fn ask(&mut self, command: &str) -> Result<Option<Reply>> {
        if self.connection.is_none() && !self.connect()? {
            return Ok(None);
        }
        let Some(connection) = &mut self.connection else { return Ok(None) };
        self.recorder.sent(self.connections, command)?;
        let Ok(answer) = connection.outcome_within(FOR_EVER, command) else {
            self.hang_up()?;
            return Ok(None);
        };
        let reply = Reply::of(answer);
        self.recorder.received(&reply)?;
        // The primary or the slot is on another server, or will be soon.
        if ["READONLY", "UNBLOCKED", "MOVED"].iter().any(|code| reply.is_error(code)) {
            self.hang_up()?;
        }
        Ok(Some(reply))
    }

    /// Asks again while nobody knows what became of the command, or a server says to try again: the command has a
    /// `REQUEST`, so it counts once. `None`: the last attempt failed, too.
    pub fn ask_until_known(&mut self, command: &str) -> Result<Option<Reply>> {
        for _ in 0..MOST_REPEATS {
            match self.ask(command)? {
                Some(reply) if TRY_AGAIN.iter().all(|code| !reply.is_error(code)) => {
                    return Ok(Some(reply));
                }
                Some(_) | None => sleep_ms(30),
            }
        }
        Ok(None)
    }

    /// Ends the connection, and with it what is bound to it.
    pub fn hang_up(&mut self) -> Result<()> {
        self.recorder.dropped()?;
        self.connection = None;
        Ok(())
    }

    /// Cuts the network: the server never hears that the connection has ended. Without the right to do so, it ends as any
    /// other.
    pub fn vanish(&mut self) -> Result<()> {
        self.recorder.dropped()?;
        let Some(connection) = self.connection.take() else { return Ok(()) };
        if connection.vanish().is_ok() { self.recorder.cut_off() } else { Ok(()) }
    }

    /// Records a value that the counter of `key` took.
    pub fn wrote(&mut self, key: &str, token: u64, value: u64) -> Result<()> {
        self.recorder.written(key, token, value)
    }

    /// Waits until the only replica has what this connection wrote, for 300 ms at most, two times in three, if the job
    /// asks for it.
    pub fn acknowledge(&mut self) -> Result<()> {
        if self.job.acknowledgement == Acknowledgement::Often && !self.random.one_in(3) {
            self.ask("WAIT 1 300")?;
        }
        Ok(())
    }

    /// Connects to the primary that the orders name; false if it does not answer for too long.
    fn connect(&mut self) -> Result<bool> {
        for _ in 0..MOST_REPEATS {
            if let Ok(connection) = Client::connect_from(self.job.address, self.control.read()?.port) {
                self.connections += 1;
                self.connection = Some(connection);
                return Ok(true);
            }
            sleep_ms(20);
        }
        Ok(false)
    }
}

/// A command that blocks has its own end, or none.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// The errors after which the same command is sent again.
const TRY_AGAIN: [&str; 5] = ["READONLY", "UNBLOCKED", "LOADING", "MOVED", "TRYAGAIN"];

/// How often something that fails is tried again before the work is given up.
const MOST_REPEATS: u32 = 100;
