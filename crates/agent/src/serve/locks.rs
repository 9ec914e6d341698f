//! The commands of the module. The engine decides, and arguments, rules and replies are those of the module.

use std::cell::Cell;
use std::rc::Rc;

use dlock_core::args::{self, AcquireAll, Malformed, Subcommand};
use dlock_core::engine::{CUT, Call as At, Entered, Heartbeat, Left, LogEntry, UserState};
use dlock_core::reply::{self, Writer};
use dlock_core::spec::{self, Spec};
use dlock_core::{BindTo, Binding, ClientId, Command, Name, Owner, Reach, Request as Wish, SessionId, UnixMs};

use super::call::{Call, Done, Refused, Run};
use super::client::Waiter;
use super::out::Out;
use super::server::{Server, identify};

/// Returns the description of the command with this name in upper case, and the function that runs the command.
pub(super) fn entry(name: &str) -> Option<(&'static Spec, Run<Server>)> {
    let run: Run<Server> = match name {
        "DLOCK.MACQUIRE" => acquire_all,
        "DLOCK.RELEASE" => release,
        "DLOCK.RENEW" => renew,
        "DLOCK.CHECK" => check,
        "DLOCK.INFO" => info,
        "DLOCK.SESSION" => session,
        "DLOCK.LOG" => log,
        "DLOCK.HELP" => help,
        _ if Command::acquiring(name).is_some() => acquire,
        _ => return None,
    };
    spec::find(name).map(|spec| (spec, run))
}

/// Acquires one lock, in the mode of the command.
fn acquire(server: &mut Server, call: &Call<'_>) -> Done {
    let command = Command::acquiring(call.name).ok_or_else(|| call.malformed(&Malformed::Arity))?;
    let key = call.key();
    let refused = |what: Malformed| call.malformed(&what);
    if key.is_empty() {
        return Err(refused(Malformed::EmptyKey));
    }
    let args = args::Acquire::parse(call.after(2), command, server.limits(call.now)).map_err(refused)?;
    enter(server, call, &[key], command, args)
}

fn acquire_all(server: &mut Server, call: &Call<'_>) -> Done {
    let limits = server.limits(call.now);
    let AcquireAll { keys, acquire } =
        AcquireAll::parse(call.after(1), limits).map_err(|what| call.malformed(&what))?;
    enter(server, call, &keys, Command::Macquire, acquire)
}

/// Acquires these locks, or has the client wait for them.
fn enter(server: &mut Server, call: &Call<'_>, keys: &[&[u8]], command: Command, args: args::Acquire) -> Done {
    let args::Acquire { owner, want, lease, cap, block, session, min_token, request } = args;
    let client = sender(call, &session, block.is_some());
    let limit_ms = block.filter(|_| !call.is_in_transaction);
    let is_owner_drawn = owner.is_none();
    let owner = owner.unwrap_or_else(|| Owner::from_uuid(draw_uuid()));
    let session = look_up(server, session);
    let wish = Wish { owner, is_owner_drawn, want, lease, cap, id: request.map(Box::new), session, min_token };
    let db = call.client.db.get();
    let names: Vec<Name<'_>> = keys.iter().map(|key| Name { db, key }).collect();
    let Some(first) = names.first() else { return Err(call.malformed(&Malformed::NoKeys)) };
    let at = At { name: *first, now: call.now, client };
    let mut waiter = None;
    let wait = limit_ms.map(|_| {
        |id| {
            let waits = Waiter { client: call.client.clone(), id, ends_at: Cell::new(None) };
            Rc::clone(waiter.insert(Rc::new(waits)))
        }
    });
    let Server { engine, keys: space, .. } = server;
    let entered = match command {
        Command::Macquire => engine.acquire_all(space, at, &names, &wish, wait),
        _ => engine.acquire(space, at, &wish, wait),
    };
    match (entered.map_err(|fault| fault.to_string())?, waiter) {
        (Entered::Granted(grant), _) => {
            reply::granted(&mut *call.out(), grant, is_owner_drawn.then_some(&wish.owner));
        }
        (Entered::Replayed(grant), _) => reply::granted(&mut *call.out(), grant, None),
        (Entered::Waiting(_), Some(waiter)) => server.wait(waiter, limit_ms.unwrap_or(0)),
        (Entered::Waiting(_) | Entered::Refused, _) => call.out().nil(),
    }
    Ok(())
}

fn release(server: &mut Server, call: &Call<'_>) -> Done {
    let args = args::Release::parse(call.after(2)).map_err(|what| call.malformed(&what))?;
    let args::Release { owner, mode, entries, token, is_break, request } = args;
    let request = dlock_core::Release { owner: &owner, mode, entries, token, request: request.as_ref() };
    let client = if is_break || !call.is_in_transaction { call.client.id } else { 0 };
    let at = At { name: call.name(), now: call.now, client: ClientId(client) };
    let Server { engine, keys, .. } = server;
    let left = match is_break {
        true => engine.break_hold(keys, at, &request),
        false => engine.release(keys, at, &request),
    };
    match left.map_err(|fault| fault.to_string())? {
        Left::NotHeld => call.out().nil(),
        Left::Partly => call.out().integer(0),
        Left::Fully => call.out().integer(1),
    }
    Ok(())
}

fn renew(server: &mut Server, call: &Call<'_>) -> Done {
    let limits = server.limits(call.now);
    let args = args::Renew::parse(call.after(2), limits).map_err(|what| call.malformed(&what))?;
    let args::Renew { owner, lease, mode, token, session } = args;
    let request = dlock_core::Renew { owner: &owner, mode, lease, token };
    let at = At { name: call.name(), now: call.now, client: sender(call, &session, false) };
    let session = look_up(server, session);
    let Server { engine, keys, .. } = server;
    match engine.renew(keys, at, &request, session).map_err(|fault| fault.to_string())? {
        Some(Reach::Asked) => call.out().integer(1),
        Some(Reach::Cap) => call.out().integer(0),
        None => call.out().nil(),
    }
    Ok(())
}

fn check(server: &mut Server, call: &Call<'_>) -> Done {
    let args::Check { token } = args::Check::parse(call.after(2)).map_err(|what| call.malformed(&what))?;
    let name = call.name();
    expire_before_read(server, name);
    let Server { engine, keys, .. } = server;
    let end = keys.expiry(name).flatten().map(UnixMs::new);
    match engine.check(name, keys.lock(name), end, call.now, token) {
        Some(left) => call.out().integer(left),
        None => call.out().nil(),
    }
    Ok(())
}

fn info(server: &mut Server, call: &Call<'_>) -> Done {
    let args::Info(detail) = args::Info::parse(call.after(2)).map_err(|what| call.malformed(&what))?;
    let name = call.name();
    expire_before_read(server, name);
    let Server { engine, keys, .. } = server;
    let end = keys.expiry(name).flatten().map(UnixMs::new);
    match engine.inspect(name, keys.lock(name), end, call.now, &detail) {
        Some(shown) => reply::inspection(&mut *call.out(), &shown, |client| identify(client, CUT)),
        None => call.out().nil(),
    }
    Ok(())
}

/// Removes a key that is about to be read if it has expired, and does what follows from that.
fn expire_before_read(server: &mut Server, name: Name<'_>) {
    server.keys.expire(name);
    server.catch_up();
}

fn session(server: &mut Server, call: &Call<'_>) -> Done {
    use args::Session as Args;
    let args = Args::parse(call.after(1)).map_err(|what| call.malformed(&what))?;
    let (own, now, uptime) = (server.keys.user.clone(), call.now, server.clock.uptime());
    let engine = &mut server.engine;
    let holds = match args {
        Args::Keep(id, timeout, only) => {
            let beat = Heartbeat { id: &id, user: &own, timeout, only };
            let kept = engine.keep_session(beat, (uptime, now), || UserState::Enabled);
            kept.map_err(|fault| fault.to_string())?
        }
        Args::Close(id, user) => engine.close_session(&id, user.unwrap_or(&own), now),
        Args::List(id, user, most) => {
            let Some(holds) = engine.list_session(&id, user.unwrap_or(&own), most, now) else {
                call.out().nil();
                return Ok(());
            };
            let mut out = call.out();
            out.array(holds.len());
            holds.iter().for_each(|hold| reply::bound_hold(&mut *out, hold));
            return Ok(());
        }
        Args::ListAll(most) => {
            // The only user may see all sessions.
            let sessions = engine.list_sessions(None, most, uptime);
            let mut out = call.out();
            out.array(sessions.len());
            sessions.iter().for_each(|session| reply::open_session(&mut *out, session));
            return Ok(());
        }
    };
    match holds {
        Some(holds) => call.out().integer(holds as u64),
        None => call.out().nil(),
    }
    Ok(())
}

fn log(server: &mut Server, call: &Call<'_>) -> Done {
    let mut words = call.after(1);
    let Some(word) = words.next() else { return Err(call.malformed(&Malformed::Arity)) };
    let Some(subcommand) = Subcommand::of(word) else { return Err(Subcommand::unknown(word, "DLOCK.LOG")) };
    let command = format!("DLOCK.LOG|{}", subcommand.name());
    let log = args::Log::parse(subcommand, words).map_err(|what| what.text(&command).into_owned())?;
    let mut out = call.out();
    match log {
        args::Log::Get(count) => {
            let entries: Vec<&LogEntry> = server.engine.log().entries().take(count).collect();
            out.array(entries.len());
            entries.iter().for_each(|entry| reply::log_entry(&mut *out, entry));
        }
        args::Log::Len => out.integer(server.engine.log().entry_count() as u64),
        args::Log::Reset => {
            server.engine.log_mut().reset();
            out.status("OK");
        }
        args::Log::Help => lines(&mut out, args::Log::HELP.into_iter()),
    }
    Ok(())
}

fn help(_: &mut Server, call: &Call<'_>) -> Done {
    let all: Vec<String> = spec::help().collect();
    lines(&mut call.out(), all.iter().map(String::as_str));
    Ok(())
}

pub(super) fn lines<'a>(out: &mut Out, lines: impl ExactSizeIterator<Item = &'a str>) {
    out.array(lines.len());
    lines.for_each(|line| out.status(line));
}

/// Returns the id of the client if a hold is bound to its connection or the client may wait, and 0 otherwise.
fn sender(call: &Call<'_>, session: &BindTo<SessionId>, waits: bool) -> ClientId {
    let is_known = *session == BindTo::Connection || (waits && !call.is_in_transaction);
    ClientId(if is_known { call.client.id } else { 0 })
}

/// Finds the session that an option names by its id.
fn look_up(server: &Server, session: BindTo<SessionId>) -> Binding {
    match session {
        BindTo::Nothing => BindTo::Nothing,
        BindTo::Connection => BindTo::Connection,
        BindTo::Named(id) => BindTo::Named(server.engine.look_up_session(&id, Some(&server.keys.user))),
    }
}

fn draw_uuid() -> [u8; 16] {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().into_bytes()
}

impl Call<'_> {
    /// Returns the text of the error, which names the command.
    pub fn malformed(&self, what: &Malformed) -> Refused {
        what.text(self.shown_name()).into_owned()
    }

    fn name(&self) -> Name<'_> {
        Name { db: self.client.db.get(), key: self.key() }
    }
}
