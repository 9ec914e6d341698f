//! How a request is carried out.

use std::rc::Rc;
use std::time::Instant;

use dlock_core::args::AcquireAll;
use dlock_core::reply::Writer;
use dlock_core::spec::{Keys as Places, Spec};

use super::call::{Call, Done, Refused, Run};
use super::client::{Client, Transaction};
use super::commands::{self, Plain};
use super::locks;
use super::server::Server;
use crate::hello::BEFORE_LOGIN;
use crate::resp::{Protocol, Request};
use crate::stats::Stats;

/// A command that the server has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Lock(&'static Spec, Run<Server>),
    Plain(&'static Plain),
}

impl Found {
    /// Finds a command by its name in upper case.
    pub fn of(name: &str) -> Option<Found> {
        match locks::entry(name) {
            Some((spec, run)) => Some(Found::Lock(spec, run)),
            None => commands::ALL.iter().find(|plain| plain.name == name).map(Found::Plain),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Found::Lock(spec, _) => spec.name,
            Found::Plain(plain) => plain.name,
        }
    }

    fn arity(self) -> i32 {
        match self {
            Found::Lock(spec, _) => spec.arity,
            Found::Plain(plain) => plain.arity,
        }
    }

    fn needs_memory(self) -> bool {
        matches!(self, Found::Lock(spec, _) if spec.flags.contains("deny-oom"))
    }

    /// Returns whether it runs at once between `MULTI` and `EXEC`.
    fn is_never_queued(self) -> bool {
        matches!(self, Found::Plain(plain) if NEVER_QUEUED.contains(&plain.name))
    }
}

const NEVER_QUEUED: [&str; 5] = ["DISCARD", "EXEC", "MULTI", "QUIT", "RESET"];
/// In RESP2, a client that hears channels may send these only.
const FOR_SUBSCRIBERS: [&str; 7] = ["PING", "PSUBSCRIBE", "PUNSUBSCRIBE", "QUIT", "RESET", "SUBSCRIBE", "UNSUBSCRIBE"];

/// Carries out a request: replies, or has the client wait.
pub(super) fn run(server: &mut Server, client: &Rc<Client>, request: &Request) {
    let name = request.name();
    client.last.set(Instant::now());
    Stats::count(&server.stats.commands);
    let found = match admit(server, client, request, &name) {
        Ok(found) => found,
        Err(refused) => {
            if let Some(transaction) = client.transaction.borrow_mut().as_mut() {
                transaction.is_broken = true;
            }
            return client.out.borrow_mut().error(&refused);
        }
    };
    let name = found.name();
    client.last_command.set(name);
    if !found.is_never_queued()
        && let Some(transaction) = client.transaction.borrow_mut().as_mut()
    {
        let queued = transaction.queue(request);
        let mut out = client.out.borrow_mut();
        return match queued {
            Ok(()) => out.status("QUEUED"),
            Err(refused) => out.error(&refused),
        };
    }
    let call = Call { client, request, now: server.clock.now(), is_in_transaction: false, name };
    match (name == "EXEC").then(|| client.transaction.take()).flatten() {
        Some(transaction) => {
            if let Err(refused) = execute(server, &call, &transaction) {
                client.out.borrow_mut().error(&refused);
            }
        }
        None => carry_out(server, found, &call),
    }
}

/// Checks that the client may send this now.
fn admit(server: &Server, client: &Client, request: &Request, name: &str) -> Result<Found, Refused> {
    if !client.is_logged_in.get() && !BEFORE_LOGIN.contains(&name) {
        return Err("NOAUTH Authentication required.".to_owned());
    }
    let found = Found::of(name).ok_or_else(|| commands::unknown(name, request))?;
    if !commands::takes(found.arity(), request.words().len()) {
        return Err(format!("ERR wrong number of arguments for '{}' command", name.to_ascii_lowercase()));
    }
    let hears = client.subscriptions() > 0 && client.out.borrow().protocol == Protocol::Resp2;
    if hears && !FOR_SUBSCRIBERS.contains(&name) {
        let name = name.to_ascii_lowercase();
        let allowed = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
        return Err(format!("ERR Can't execute '{name}': {allowed}"));
    }
    if server.is_full && found.needs_memory() {
        return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
    }
    Ok(found)
}

fn carry_out(server: &mut Server, found: Found, call: &Call<'_>) {
    server.catch_up();
    let done = match found {
        Found::Lock(_, run) => run(server, call),
        Found::Plain(plain) => (plain.run)(server, call),
    };
    if let Err(refused) = done {
        call.out().error(&refused);
    }
    let db = call.client.db.get();
    match found {
        Found::Lock(Spec { keys: Places::First(_), .. }, _) => server.settle(db, &[call.key()]),
        Found::Lock(Spec { keys: Places::Numbered(_), .. }, _) => {
            let count = AcquireAll::key_count(call.after(1)).unwrap_or(0);
            let own: Vec<_> = call.after(2).take(count).collect();
            server.settle(db, &own);
        }
        _ => server.settle(db, &[]),
    }
}

impl Transaction {
    fn queue(&mut self, request: &Request) -> Result<(), Refused> {
        self.bytes += request.words().iter().map(|word| word.len() + WORD).sum::<usize>();
        if self.bytes > MOST_QUEUED || self.requests.len() >= MOST_COMMANDS {
            self.is_broken = true;
            return Err("ERR the transaction is too long".to_owned());
        }
        self.requests.push(request.clone());
        Ok(())
    }
}

/// `EXEC`: the clock stands still for it, and nobody waits.
fn execute(server: &mut Server, call: &Call<'_>, transaction: &Transaction) -> Done {
    if transaction.is_broken {
        return Err("EXECABORT Transaction discarded because of previous errors.".to_owned());
    }
    call.out().array(transaction.requests.len());
    for request in &transaction.requests {
        // The command was found when it was queued.
        let Some(found) = Found::of(&request.name()) else { continue };
        let inner = Call { request, is_in_transaction: true, name: found.name(), ..*call };
        carry_out(server, found, &inner);
        // A client that gets no more replies is disconnected afterwards: the transaction runs as a whole.
        call.client.bound();
    }
    Ok(())
}

/// How many bytes and how many commands a transaction may have: nobody else is served while it runs.
const MOST_QUEUED: usize = 1 << 20;
const MOST_COMMANDS: usize = 1000;
/// The memory of a word, beside its bytes.
const WORD: usize = 32;
