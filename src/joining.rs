//! Getting into line: a request that is refused waits, takes over the place it has, or is told that it would wait for
//! ever.

use std::cell::Cell;
use std::rc::Rc;

use dlock_core::{
    Acquire, Acquired, Change, Effect, Lock, Mode, Owner, Place, Step, TwoUpgrades, UnixMs, Waiters, find_cycle,
};

use crate::error::Error;
use crate::ffi::blocking::block;
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key, Name};
use crate::lines::{LockName, is_nobody_waiting, with_lines};
use crate::reply::Reply;
use crate::state::state;
use crate::store::{OpenLock, Replication};
use crate::waiter::Waiter;
use crate::waiting::{Grants, forget, watch};

/// How a request waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For how long, in ms; 0 is for ever.
    pub timeout_ms: u64,
    /// Whether the server made the owner up.
    pub made_up: bool,
    /// Whether the hold is to be bound to the client.
    pub binds: bool,
}

/// Decides on a request that has just come, by the lock and by its line.
pub fn decide(context: &Context, name: &Name, open: &OpenLock, now: Now, request: &Acquire) -> Acquired {
    let (lock, clock) = (open.lock(), now.millis());
    let (default, fresh) = (state().settings.default_lease(), state().next_token(now));
    if is_nobody_waiting() {
        return lock.acquire(clock, request, default, fresh);
    }
    with_lines(|lines| match lines.get(context.db(), name.bytes()) {
        Some(found) => found.line.decide(lock, clock, request, default, fresh),
        None => lock.acquire(clock, request, default, fresh),
    })
}

/// A request that was refused as held waits instead, unless that would be a deadlock.
pub fn join(
    context: &Context,
    name: &Name,
    open: &mut OpenLock,
    now: Now,
    request: &Acquire,
    patience: Patience,
) -> Result<Rc<Waiter>, Error> {
    let db = context.db();
    let clock = now.millis();
    let max = state().settings.max_waiters();
    // Only joining adds a line, and it adds a waiter: there is never a line without one.
    let (waiter, is_first, waits_elsewhere) = with_lines(|lines| {
        if max.is_some_and(|max| lines.waiters() >= max) {
            return Err(Error::TooManyWaiters);
        }
        let waits_elsewhere = !lines.waits_of(request.owner).is_empty();
        let found = lines.get_or_add(db, name.bytes());
        let line = Rc::clone(&found.name);
        let is_first = found.line.is_empty();
        let waiter = new_waiter(context, &line, request, now, patience);
        match found.line.join(open.lock(), clock, request, Rc::clone(&waiter)) {
            Ok(place) => {
                waiter.place.set(Some(place));
                lines.joined(request.owner, &line, place);
                Ok((waiter, is_first, waits_elsewhere))
            }
            Err(TwoUpgrades) => Err(deadlock("another owner waits to upgrade the lock already".to_owned())),
        }
    })?;
    if !waits_elsewhere && let Some(cycle) = cycle(context, open, &waiter, clock) {
        forget(&waiter);
        return Err(deadlock(cycle));
    }
    // The key is to outlive the last deadline while somebody waits, unless somebody made it end early.
    if is_first && open.end().is_some() && open.end() == open.lock().last_deadline() {
        open.apply(Effect { clock, change: Change::Sweep, waiters: Waiters::Some }, Replication::Effect);
    }
    watch(&waiter.line, open, clock);
    state().stats.waits.count();
    Ok(waiter)
}

fn new_waiter(context: &Context, line: &Rc<LockName>, request: &Acquire, now: Now, patience: Patience) -> Rc<Waiter> {
    Rc::new(Waiter {
        line: Rc::clone(line),
        place: Cell::new(None),
        owner: request.owner.clone(),
        made_up: patience.made_up,
        binds: patience.binds,
        since: now,
        client: context.client_id(),
        blocked: Cell::new(None),
        outcome: Cell::new(None),
    })
}

/// Blocks the client of a waiter that has joined. The key must be closed.
pub fn wait(context: &Context, name: &Name, waiter: &Rc<Waiter>, patience: Patience) {
    block(context, name, patience.timeout_ms, waiter);
    context.notify(c"dlock.wait", name);
}

/// The place of a request that came before and still waits.
pub fn place_of_repeated(context: &Context, name: &Name, request: &Acquire) -> Option<(Rc<LockName>, Place)> {
    let id = request.request?;
    with_lines(|lines| {
        let waits: Vec<_> = lines.waits_of(request.owner).to_vec();
        let line = &lines.get(context.db(), name.bytes())?;
        waits.into_iter().find(|(of, place)| *of == line.name && line.line.is_repeated(*place, id))
    })
}

/// A request that came again takes over the place it has in the line; the one that came first gets nil.
pub fn take_over(
    context: &Context,
    (line, place): (Rc<LockName>, Place),
    now: Now,
    request: &Acquire,
    patience: Patience,
) -> (Rc<Waiter>, Grants) {
    let waiter = new_waiter(context, &line, request, now, patience);
    waiter.place.set(Some(place));
    let first = with_lines(|lines| {
        let found = lines.get(line.db, &line.key)?;
        found.line.take_over(place, request.lease, Rc::clone(&waiter))
    });
    if let Some(first) = &first {
        first.place.set(None);
        first.outcome.set(Some(Ok(Reply::Nil)));
    }
    (waiter, first.into_iter().collect())
}

/// The error of a request that would wait for ever.
pub fn deadlock(how: String) -> Error {
    state().stats.deadlocks.count();
    Error::Deadlock(how)
}

/// The cycle of owners a waiter would close, in words.
fn cycle(context: &Context, open: &OpenLock, waiter: &Rc<Waiter>, now: UnixMs) -> Option<String> {
    // Only an owner that waits elsewhere can lead on, or one that waits here for the holders, of whom this may be one.
    let is_holder = open.lock().live_holds_of(&waiter.owner, now).next().is_some();
    let others = with_lines(|lines| {
        let here = lines.get(waiter.line.db, &waiter.line.key).map_or(0, |found| found.line.len());
        lines.waiters() > here
    });
    if !others && !is_holder {
        return None;
    }
    let wait = (Rc::clone(&waiter.line), waiter.place.get()?);
    let db = context.db();
    let in_the_way = |(line, place): &(Rc<LockName>, Place), most: usize| {
        let mode = with_lines(|lines| lines.get(line.db, &line.key).map(|found| found.line.waits_for(*place)));
        let owners =
            |lock: &Lock| lock.owners_in_the_way(mode.unwrap_or(Mode::Exclusive), now).take(most).cloned().collect();
        if Rc::ptr_eq(line, &waiter.line) {
            return owners(open.lock());
        }
        context.select_db(line.db);
        let name = Name::new(&line.key);
        let key = Key::open(context, &name, Access::Peek);
        key.as_ref().ok().and_then(Key::lock).map_or_else(Vec::new, owners)
    };
    let next_wait = |owner: &Owner| {
        with_lines(|lines| match lines.waits_of(owner) {
            [(line, place)] => Some((Rc::clone(line), *place)),
            _ => None,
        })
    };
    let found = find_cycle(&waiter.owner, wait, in_the_way, next_wait);
    context.select_db(db);
    found.map(|steps| describe(&steps))
}

fn describe(steps: &[Step<(Rc<LockName>, Place)>]) -> String {
    let holders = steps.iter().cycle().skip(1);
    let parts: Vec<String> = steps
        .iter()
        .zip(holders)
        .take(MAX_STEPS_SHOWN)
        .map(|(step, holder)| {
            let (owner, holder) = (readable(&step.owner.text()), readable(&holder.owner.text()));
            format!("{owner} waits for {} held by {holder}", readable(&step.lock.0.key))
        })
        .collect();
    let more = if steps.len() > MAX_STEPS_SHOWN { ", …" } else { "" };
    format!("{}{more}", parts.join(", "))
}

/// The beginning of a name of any bytes and length.
fn readable(name: &[u8]) -> String {
    let shown = name.get(..MAX_BYTES_SHOWN).unwrap_or(name);
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

const MAX_BYTES_SHOWN: usize = 64;
const MAX_STEPS_SHOWN: usize = 8;
