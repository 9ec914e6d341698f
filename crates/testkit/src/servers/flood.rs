//! Clients that send commands as fast as the server reads them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::server::Server;
use crate::turn::OnDrop;

/// The number of commands that are sent at once: enough to fill the server's buffer for the connection.
const BATCH: u64 = 200;

/// The number of locks that a session holds during an attack.
pub const ATTACKED: usize = 20;
/// The duration of an attack, in which every lease must be extended several times.
const ATTACK: Duration = Duration::from_secs(5);

/// The pause between two PINGs.
const PAUSE: Duration = Duration::from_millis(2);

/// The effect of an attack on other clients.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How many of the [`ATTACKED`] session locks were lost.
    pub lost: usize,
    /// The longest time that a `PING` took, as wall time.
    pub longest_ping: Duration,
}

/// Clients that send commands without reading any reply, until the value is dropped.
pub struct Flood {
    has_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts clients that send commands, each from a thread of its own. `command` makes a command from the number of the
    /// client and the number of the command.
    pub fn flood(&self, clients: u64, command: impl Fn(u64, u64) -> Vec<u8> + Copy + Send + 'static) -> Flood {
        let has_ended = Arc::new(AtomicBool::new(false));
        let begin = |client| {
            let (has_ended, mut connection) = (Arc::clone(&has_ended), self.client());
            std::thread::spawn(move || send(&mut connection, &has_ended, |n| command(client, n)))
        };
        let threads = (0..clients).map(begin).collect();
        Flood { has_ended, threads }
    }
}

impl Server {
    /// Returns the longest time that a `PING` takes while `act` runs, as wall time. If the machine does not run the
    /// thread that sends it, that counts, too: nobody sees meanwhile whether the server answers.
    pub fn longest_ping(&self, act: impl FnOnce()) -> Duration {
        let (mut pinger, has_ended) = (self.client(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                let mut due = Instant::now();
                while !has_ended.load(Ordering::Relaxed) {
                    pinger.run("PING");
                    longest = longest.max(due.elapsed());
                    due = Instant::now() + PAUSE;
                    std::thread::sleep(PAUSE);
                }
                longest
            });
            // The guard ends the PINGs even after a panic, because the scope waits for their thread.
            let pinging_ends = OnDrop(|| has_ended.store(true, Ordering::Relaxed));
            act();
            drop(pinging_ends);
            pinging.join().expect("every PING is answered")
        })
    }

    /// Holds [`ATTACKED`] locks by a session with this lease during an attack, which `act` starts and the drop of its
    /// result ends.
    pub fn sessions_under(&self, lease: Duration, act: impl FnOnce() -> Box<dyn Any>) -> Outcome {
        let [mut client, mut session] = [self.client(), self.client()];
        let acquire = |n| session.int(format!("DLOCK.ACQUIRE victim{n} v PX {} SESSION", lease.as_millis()));
        let tokens: Vec<i64> = (0..ATTACKED).map(acquire).collect();
        let mut lost = 0;
        let longest_ping = self.longest_ping(|| {
            let acting = act();
            std::thread::sleep(ATTACK);
            let mut is_lost =
                |n: &usize| client.run(format!("DLOCK.CHECK victim{n} {}", tokens[*n])) == redis::Value::Nil;
            lost = (0..ATTACKED).filter(|n| is_lost(n)).count();
            drop(acting);
        });
        Outcome { lost, longest_ping }
    }
}

fn send(client: &mut Client, has_ended: &AtomicBool, command: impl Fn(u64) -> Vec<u8>) {
    client.send("CLIENT REPLY OFF");
    for batch in 0.. {
        if has_ended.load(Ordering::Relaxed) {
            return;
        }
        let bytes: Vec<u8> = (batch * BATCH..(batch + 1) * BATCH).flat_map(&command).collect();
        client.send_raw(&bytes);
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread panics, with a message, if the server has closed its connection.
            let _ = thread.join();
        }
    }
}
