//! The threads that contend.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::client::{Client, Scripts};
use super::round::{Round, Traffic};
use crate::error::Error;
use crate::server::Server;
use crate::times::contended::way::Way;
use crate::waiting::Open;

/// Clients with a thread each, who do nothing until they are told to contend.
pub struct Crowd {
    members: Vec<(Sender<Arc<Round>>, JoinHandle<()>)>,
    /// How long the hand-offs to a member took in a round, in microseconds.
    done: Receiver<Result<Vec<f64>, Error>>,
}

impl Crowd {
    pub fn gather(server: &Server, size: usize) -> Result<Self, Error> {
        let scripts = Scripts::load(&mut server.connect()?)?;
        let (tell, done) = mpsc::channel();
        let mut members = Vec::new();
        for number in 0..size {
            let mut client = Client::connect(server.address(), number, &scripts)?;
            let (start, rounds) = mpsc::channel::<Arc<Round>>();
            let tell = tell.clone();
            let work = move || {
                for round in rounds {
                    // The receiver is gone if another client has failed.
                    let _ = tell.send(round.take_part(&mut client));
                }
            };
            let thread = thread::Builder::new().stack_size(STACK).spawn(work);
            members.push((start, thread.map_err(Error::io("starting a thread"))?));
        }
        Ok(Self { members, done })
    }

    /// Has all clients contend in this way for `time`. Each holder keeps the lock for `held`. `open` is the server, and
    /// a connection to prepare the lock with.
    pub fn contend(&self, way: Way, held: Duration, time: Duration, open: &mut Open) -> Result<Outcome, Error> {
        way.lay_out(&mut open.control)?;
        let round = Arc::new(Round::new(way, held, self.members.len()));
        for (start, _) in &self.members {
            start.send(Arc::clone(&round)).map_err(|_| Error::Server("a client has gone".into()))?;
        }
        round.until_all_wait()?;
        let traffic = round.watch(time);
        round.end();
        way.let_go(self.members.len(), &mut open.control)?;
        let mut latencies = Vec::new();
        for _ in &self.members {
            latencies.extend(self.done.recv().map_err(|_| Error::Server("a client has gone".into()))??);
        }
        Ok(Outcome { latencies, traffic })
    }

    /// Waits until all threads have ended.
    pub fn join_all(self) {
        for (start, thread) in self.members {
            drop(start);
            // A thread has reported its errors in its last round.
            let _ = thread.join();
        }
    }
}

pub struct Outcome {
    /// How long each hand-off took, in microseconds.
    pub latencies: Vec<f64>,
    pub traffic: Traffic,
}

/// The stack of a thread. Thousands of threads may run, and none needs much.
const STACK: usize = 256 * 1024;
