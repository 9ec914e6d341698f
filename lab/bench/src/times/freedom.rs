//! How long a lock stays with a holder that is gone: killed, stopped, or cut off from the server.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::child::ClientProcess;
use dlock_testkit::{Client, Server};

use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};
use crate::server::Programs;

/// The way in which a holder keeps its lock: by renewals of the lease, or by a session.
pub struct Tie {
    /// The name in the figures.
    pub name: &'static str,
    /// The description on the page.
    pub label: &'static str,
    /// The holder's command before the acquisition.
    open: Option<&'static str>,
    /// An option of `DLOCK.ACQUIRE`.
    option: &'static str,
    /// The command that the holder sends every [`THIRD`].
    beat: Option<&'static str>,
}

/// In the commands, `KEY` stands for the name of the lock, which is also the id of the session.
pub static TIES: [Tie; 3] = [
    Tie {
        name: "lease",
        label: "lease of 3 s, renewed each second",
        open: None,
        option: "",
        beat: Some("DLOCK.RENEW KEY a PX 3000"),
    },
    Tie { name: "connection", label: "session of the connection", open: None, option: "SESSION", beat: None },
    Tie {
        name: "named",
        label: "named session of 3 s, a heartbeat each second",
        open: Some("DLOCK.SESSION KEY PX 3000 NX"),
        option: "SESSIONID KEY",
        beat: Some("DLOCK.SESSION KEY PX 3000 XX"),
    },
];

/// How a holder goes: the name in the figures, and the description on the page.
pub const ENDS: [(&str, &str); 3] =
    [("killed", "`kill -9`, s"), ("stopped", "`SIGSTOP`, s"), ("cut", "network cut, s")];

/// The lease, and the timeout of the session.
const TIME: Duration = Duration::from_secs(3);
/// The interval of renewals and heartbeats: a third of [`TIME`].
const THIRD: Duration = Duration::from_secs(1);
/// A lock that nobody gets within twice [`TIME`] counts as never free.
pub const PATIENCE: Duration = Duration::from_secs(6);

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let setup = programs.testkit();
    let server = setup.start();
    let mut seconds: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 0..rounds {
        // In each round, the holder goes at another time after its last heartbeat.
        let phase = THIRD + THIRD * u32::try_from(round).unwrap_or(0) / u32::try_from(rounds).unwrap_or(1).max(1);
        for (figure, time) in one_of_each(&server, round, phase) {
            match seconds.iter_mut().find(|(name, _)| *name == figure) {
                Some((_, times)) => times.push(time),
                None => seconds.push((figure, vec![time])),
            }
        }
    }
    for (figure, times) in seconds {
        ledger.note(figure, Figure::of_rounds(&Sample::new(times)));
    }
    Ok(())
}

/// Measures every tie with every end side by side. They hardly slow each other: each waits nearly all the time.
fn one_of_each(server: &Server, round: usize, phase: Duration) -> Vec<(String, f64)> {
    let all = TIES.iter().flat_map(|tie| ENDS.map(|(end, _)| (tie, end)));
    thread::scope(|scope| {
        let begin = |(tie, end): (&'static Tie, &'static str)| {
            scope.spawn(move || {
                let holder = Holder { server, tie, key: format!("{}-{end}-{round}", tie.name) };
                let time = holder.until_free(end, phase)?;
                Some((format!("freedom/{}/{end}", tie.name), time.map_or(f64::INFINITY, |time| time.as_secs_f64())))
            })
        };
        let running: Vec<_> = all.map(begin).collect();
        running.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
    })
}

struct Holder<'a> {
    server: &'a Server,
    tie: &'static Tie,
    key: String,
}

impl Holder<'_> {
    /// Returns the time from the end of the holder to the grant of the waiter, or `Some(None)` if no grant comes within
    /// [`PATIENCE`]. `None`: this machine cannot cut off a client.
    fn until_free(&self, end: &str, phase: Duration) -> Option<Option<Duration>> {
        if end == "cut" {
            return self.until_free_if_cut(phase);
        }
        let commands = self.commands();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let beat = self.tie.beat.map(|beat| self.named(beat));
        let holder = match &beat {
            Some(beat) => ClientProcess::start_beating(self.server, &commands, beat, THIRD.as_secs()),
            None => ClientProcess::start(self.server, &commands),
        };
        let mut waiter = self.waiter();
        thread::sleep(phase);
        let start = Instant::now();
        if end == "killed" {
            holder.kill9()
        } else {
            holder.freeze()
        }
        Some(waiter.poll(PATIENCE).map(|_| start.elapsed()))
    }

    /// Does the same for a holder that is cut off: a connection of this process that ends without telling the server.
    fn until_free_if_cut(&self, phase: Duration) -> Option<Option<Duration>> {
        let mut holder = self.server.client();
        for command in self.commands() {
            holder.run(command);
        }
        let mut waiter = self.waiter();
        let until = Instant::now() + phase;
        while let Some(rest) = until.checked_duration_since(Instant::now()) {
            thread::sleep(rest.min(THIRD));
            if rest > THIRD
                && let Some(beat) = self.tie.beat
            {
                holder.run(self.named(beat));
            }
        }
        let start = Instant::now();
        if let Err(error) = holder.vanish() {
            println!("skipped: a network that is cut (needs CAP_NET_ADMIN: {error})");
            return None;
        }
        Some(waiter.poll(PATIENCE).map(|_| start.elapsed()))
    }

    /// Returns the commands that get the lock for the holder.
    fn commands(&self) -> Vec<String> {
        let acquire = format!("DLOCK.ACQUIRE KEY a PX {} {}", TIME.as_millis(), self.tie.option);
        self.tie.open.into_iter().chain([acquire.as_str()]).map(|command| self.named(command)).collect()
    }

    /// Waits until the lock is held, and returns a client that waits for it.
    fn waiter(&self) -> Client {
        let mut client = self.server.client();
        while client.int(format!("EXISTS {}", self.key)) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        client.send(format!("DLOCK.ACQUIRE {} b BLOCK 0", self.key));
        client
    }

    /// Returns the command with the name of the lock in place of `KEY`.
    fn named(&self, command: &str) -> String {
        command.replace("KEY", &self.key)
    }
}

/// Shows a figure in seconds as median, least and most: `2.95 (2.40–3.10)`. A figure under 0.1 s has four decimals.
pub fn shown(figure: Figure) -> String {
    if figure.median.is_infinite() {
        return format!("not within {} s", PATIENCE.as_secs());
    }
    let decimals = if figure.most < 0.1 { 4 } else { 2 };
    let Figure { median, least, most } = figure;
    format!("{median:.decimals$} ({least:.decimals$}–{most:.decimals$})")
}
