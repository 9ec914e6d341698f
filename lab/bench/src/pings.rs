//! How long the server keeps others waiting: a client that sends `PING` while something else goes on.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::figures::Sample;
use crate::server::Server;

/// Does the work with a `PING` loop beside it, and returns the loop's times in milliseconds.
///
/// The loop rests between reply and next request, so that it does not keep the server busy by itself.
pub fn beside<T>(
    server: &Server,
    rest: Duration,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(T, Sample), Error> {
    let over = AtomicBool::new(false);
    let mut connection = server.connect()?;
    connection.settle()?;
    thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let sent = Instant::now();
                connection.settle()?;
                times.push(sent.elapsed().as_secs_f64() * 1e3);
                thread::sleep(rest);
            }
            Ok::<_, Error>(Sample::new(times))
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        let times = pings.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((done?, times?))
    })
}

/// `median …, p99.9 …, worst … of n`.
pub fn summary(times: &Sample) -> String {
    format!(
        "median {:.3} ms, p99.9 {:.3} ms, worst {:.3} ms of {}",
        times.median(),
        times.per_mille(999),
        times.most(),
        times.len()
    )
}
