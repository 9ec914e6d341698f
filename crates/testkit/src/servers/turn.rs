//! How long the server is busy at a stretch.
//!
//! Tests share the machine, so no measure is wall time alone: a stretch counts by the CPU time that the server took in
//! it, and by the wall time if that is less. Callers repeat a measurement and take the least.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Request};
use crate::server::Server;
use crate::wait::{PATIENCE, soon};

/// The CPU time of another process.
#[derive(Clone, Copy)]
struct CpuClock(libc::clockid_t);

impl CpuClock {
    fn of(server: &Server) -> Self {
        let pid = i32::try_from(server.pid()).expect("a process id");
        let mut clock = 0;
        // SAFETY: the call writes the one value it is given.
        let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        assert_eq!(error, 0, "the CPU clock of a child");
        Self(clock)
    }

    fn now(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes the one structure it is given.
        let done = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Does something when it is dropped, by a panic or without one.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Server {
    /// Measures the server while this acts: CPU time, or wall time if that is less.
    #[track_caller]
    pub fn takes(&self, act: impl FnOnce()) -> Duration {
        let clock = CpuClock::of(self);
        let (wall, cpu) = (Instant::now(), clock.now());
        act();
        wall.elapsed().min(clock.now() - cpu)
    }

    /// Returns the longest time that a `PING` of another connection waits for the server while this acts.
    #[track_caller]
    pub fn longest_turn(&self, act: impl FnOnce()) -> Duration {
        let mut pinger = self.client();
        let (pings, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let turn = self.takes(|| {
                        pinger.send("PING");
                        pinger.poll(PATIENCE).expect("an answer in time");
                    });
                    longest = longest.max(turn);
                    pings.fetch_add(1, Ordering::Relaxed);
                }
                longest
            });
            let another = || {
                let before = pings.load(Ordering::Relaxed);
                soon("it is asked", || pings.load(Ordering::Relaxed) > before + 1);
            };
            // A panic ends the PINGs, too: the scope waits for them.
            let pinging_ends = OnDrop(|| ended.store(true, Ordering::Relaxed));
            another();
            act();
            another();
            drop(pinging_ends);
            pinging.join().expect("every PING is answered")
        })
    }
}

impl Client {
    /// Sends requests whose replies nobody needs, and waits until the server has done them all.
    #[track_caller]
    pub fn pour<R: Request>(&mut self, requests: impl IntoIterator<Item = R>) {
        self.send("CLIENT REPLY OFF");
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(request.packed());
            if bytes.len() > 1 << 20 {
                self.send_raw(&bytes);
                bytes.clear();
            }
        }
        self.send_raw(&bytes);
        self.send("CLIENT REPLY ON");
        assert_eq!(self.read(), Ok(redis::Value::Okay));
    }
}

/// Returns the least of three measurements: other processes of the machine only ever add to one.
#[track_caller]
pub fn least_of_three(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| measure()).min().expect("three")
}
