//! `dlock serve`: a server of locks in memory, with the engine of the module and the commands that clients of locks
//! need.
//!
//! A single thread owns the engine, as in Redis, and serves all connections in turn.
//!
//! | file | knows |
//! |---|---|
//! | `server` | the engine, its keys and the clients; what is sent after a command, and what is due at which time |
//! | `around`, `clock` | what the engine asks of the server beside keys |
//! | `connection`, `client`, `out` | a connection: what it sends, and what it is sent |
//! | `stream`, `secure` | its socket, with TLS or without |
//! | `call`, `run` | how a request is admitted and carried out |
//! | `locks` | the commands of dlock |
//! | `commands` | all other commands, and why there are no more |
//! | `channels`, `glob` | the subscribers of events |

mod about;
mod around;
mod call;
mod channels;
mod client;
mod clients;
mod clock;
mod commands;
mod connection;
mod glob;
mod greeting;
#[cfg(test)]
mod histories;
mod keys;
mod locks;
mod memory;
mod options;
mod out;
mod run;
#[cfg_attr(not(feature = "tls"), path = "secure/none.rs")]
mod secure;
mod server;
mod stream;
mod subscriptions;
mod transactions;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

pub use options::{Certificates, ServeOptions};

use crate::listen::{Incoming, Listener, allow_files};
use crate::notify;
use crate::options::Access;
use crate::resp::{Protocol, Reply};
use crate::stats::Stats;
use client::Client;
use connection::Connection;
use secure::Authority;
use server::Server;
use stream::Stream;

/// A server of locks in memory that has not started yet.
#[must_use = "it does nothing before it runs"]
pub struct Serve {
    options: ServeOptions,
    stats: Stats,
}

impl Serve {
    /// Returns a server. `log` gets a line for what an operator should know.
    pub fn new(options: ServeOptions, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { options, stats: Stats::new(Box::new(log)) }
    }

    /// Listens and serves clients until `stop` resolves. `ready` gets the port, if there is one. Notifies systemd when
    /// it is ready, if systemd started it.
    ///
    /// # Errors
    ///
    /// Returns the error of an address on which the server cannot or may not listen.
    pub async fn run(self, stop: impl Future<Output = ()>, ready: impl FnOnce(Option<u16>)) -> io::Result<()> {
        let Self { options, stats } = self;
        let stats = Rc::new(stats);
        allow_files(options.max_clients, &stats);
        let access =
            Access { socket_mode: options.socket_mode, is_remote: options.remote, has_login: options.login.is_some() };
        let authority = options.tls.as_ref().map(Authority::read).transpose()?;
        let listeners = Listener::open_all(&options.listen, access)?;
        let port = listeners.iter().find_map(Listener::port);
        stats.log(about::MEMORY_ONLY);
        let (to, incoming) = mpsc::channel(128);
        let mut accepting = JoinSet::new();
        for listener in &listeners {
            stats.log(&format!("listens on {}", listener.address()));
            accepting.spawn(listener.accept(to.clone()));
        }
        let server = Rc::new(RefCell::new(Server::new(options, stats.clone(), port.unwrap_or(0))));
        notify::tell("READY=1");
        ready(port);
        LocalSet::new().run_until(drive(server, incoming, authority, stop)).await;
        notify::tell("STOPPING=1");
        stats.log("has stopped");
        Ok(())
    }
}

/// Admits clients, and does what is due, until `stop` resolves.
async fn drive(
    server: Rc<RefCell<Server>>,
    mut incoming: mpsc::Receiver<Incoming>,
    authority: Option<Authority>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let timer = server.borrow().timer.clone();
    let mut sweeps = interval(SWEEP);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wakes_at = server.borrow_mut().wakes_at().unwrap_or_else(|| Instant::now() + SWEEP);
        tokio::select! {
            () = &mut stop => return,
            () = timer.notified() => {}
            () = sleep_until(wakes_at.into()) => server.borrow_mut().timer_runs(),
            Some(new) = incoming.recv() => {
                admit(&server, new, authority.as_ref());
                // Clients that come at the same time are admitted in one turn.
                while let Ok(new) = incoming.try_recv() {
                    admit(&server, new, authority.as_ref());
                }
            }
            _ = sweeps.tick() => {
                let mut server = server.borrow_mut();
                server.sweep();
                server.is_full = memory::resident().is_some_and(|bytes| bytes > server.options.max_memory);
            }
        }
    }
}

fn admit(server: &Rc<RefCell<Server>>, new: Incoming, authority: Option<&Authority>) {
    let mut state = server.borrow_mut();
    if !state.has_room() {
        Stats::count(&state.stats.rejected_connections);
        let mut bytes = Vec::new();
        Reply::error("ERR max number of clients reached").encode(Protocol::Resp2, &mut bytes);
        return match (&new, authority) {
            // A client that speaks TLS cannot read the error.
            (Incoming::Tcp(..), Some(_)) => {}
            _ => new.refuse(&bytes),
        };
    }
    Stats::count(&state.stats.connections);
    let id = state.next_id();
    if state.options.verbose {
        state.stats.log(&format!("connection {id} from {}", new.address()));
    }
    if let Some(line) = authority.and_then(Authority::reload_if_changed) {
        state.stats.log(&line);
    }
    let address = new.address();
    let Ok(stream) = Stream::new(new, authority) else { return };
    let client = Rc::new(Client::new(id, address, stream, state.options.login.is_none()));
    drop(state);
    tokio::task::spawn_local(Connection::new(server.clone(), client).serve());
}

impl std::fmt::Debug for Serve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serve").field("options", &self.options).finish_non_exhaustive()
    }
}

/// How often the server looks for keys that have expired, and at its memory.
const SWEEP: Duration = Duration::from_millis(100);
