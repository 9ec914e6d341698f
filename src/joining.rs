//! Getting into line: a request that is refused waits, takes over the place it has, or is told that it would wait for
//! ever.

use std::cell::Cell;
use std::rc::Rc;

use dlock_core::{
    Acquire, Acquired, Change, Effect, Hold, Lock, Owner, Place, Refusal, Step, UnixMs, Waiters, find_cycle,
};
use smallvec::SmallVec;

use crate::ended::settled;
use crate::error::Error;
use crate::ffi::blocking::block;
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key, Name};
use crate::lines::{LockLine, waiters, with_lines};
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
pub fn decide(open: &OpenLock, now: Now, request: &Acquire) -> Acquired {
    let (lock, clock) = (open.lock(), now.millis());
    let (default, fresh) = (state().settings.default_lease(), state().next_token(now));
    match &open.line {
        Some(line) => line.with(|line| line.decide(lock, clock, request, default, fresh)),
        None => lock.acquire(clock, request, default, fresh),
    }
}

/// The hold a request gets of a lock that nobody holds or waits for.
pub fn first_hold(now: Now, request: &Acquire) -> Result<Hold, Refusal> {
    request.first_hold(now.millis(), state().settings.default_lease(), state().next_token(now))
}

/// A request that was refused as held waits instead, unless that would be a deadlock.
pub fn join(open: &mut OpenLock, now: Now, request: &Acquire, patience: Patience) -> Result<Rc<Waiter>, Error> {
    if state().settings.max_waiters().is_some_and(|max| waiters() >= max) {
        return Err(Error::TooManyWaiters);
    }
    let (context, clock) = (open.context, now.millis());
    let is_first = open.waiters() == Waiters::None;
    let line = line_to_join(open);
    let waiter = new_waiter(context, &line, now, patience);
    let Ok(place) = line.with(|line| line.join(open.lock(), clock, request, Rc::clone(&waiter))) else {
        // `TwoUpgrades`: so the other one waits, and the line was there before.
        return Err(deadlock("another owner waits to upgrade the lock already".to_owned()));
    };
    waiter.place.set(Some(place));
    let waits_elsewhere = with_lines(|lines| lines.joined(request.owner, &line, place));
    if !waits_elsewhere && let Some(cycle) = cycle(open, request.owner, &waiter, clock) {
        forget(&waiter);
        return Err(deadlock(cycle));
    }
    // The key is to outlive the last deadline while somebody waits, unless somebody made it end early.
    if is_first && open.end().is_some() && open.end() == open.lock().last_deadline() {
        open.apply(Effect { clock, change: Change::Sweep, waiters: Waiters::Some }, Replication::Effect);
    }
    if open.is_changed() || !line.is_settled(clock) {
        watch(&line, open, clock);
    }
    state().stats.waits.count();
    Ok(waiter)
}

/// The line of an open lock; a new one if nobody waits, or those who did have just been served.
fn line_to_join(open: &mut OpenLock) -> Rc<LockLine> {
    let known = open.line.take().filter(|line| !line.is_empty());
    let make = || with_lines(|lines| lines.find_or_make(open.context.db(), open.name.bytes()));
    Rc::clone(open.line.insert(known.unwrap_or_else(make)))
}

fn new_waiter(context: &Context, line: &Rc<LockLine>, now: Now, patience: Patience) -> Rc<Waiter> {
    Rc::new(Waiter {
        line: Rc::clone(line),
        place: Cell::new(None),
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
pub fn place_of_repeated(open: &OpenLock, request: &Acquire) -> Option<Place> {
    let (id, here) = (request.request?, open.line.as_ref()?);
    let places: SmallVec<[Place; 1]> = with_lines(|lines| {
        let waits = lines.waits_of(request.owner).iter();
        waits.filter(|(line, _)| Rc::ptr_eq(line, here)).map(|(_, place)| *place).collect()
    });
    here.with(|line| places.into_iter().find(|place| line.is_repeated(*place, id)))
}

/// A request that came again takes over the place it has in the line; the one that came first gets nil.
pub fn take_over(
    open: &OpenLock,
    place: Place,
    now: Now,
    request: &Acquire,
    patience: Patience,
    grants: &mut Grants,
) -> Option<Rc<Waiter>> {
    let line = open.line.as_ref()?;
    let waiter = new_waiter(open.context, line, now, patience);
    let first = line.with(|line| line.take_over(place, request.lease, Rc::clone(&waiter)))?;
    waiter.place.set(Some(place));
    first.place.set(None);
    first.outcome.set(Some(Ok(Reply::Nil)));
    grants.add(first);
    Some(waiter)
}

/// The error of a request that would wait for ever.
pub fn deadlock(how: String) -> Error {
    state().stats.deadlocks.count();
    Error::Deadlock(how)
}

/// The cycle of owners that `owner` would close as this waiter, in words.
fn cycle(open: &OpenLock, owner: &Owner, waiter: &Rc<Waiter>, now: UnixMs) -> Option<String> {
    let context = open.context;
    // Only an owner that waits elsewhere can lead on, or one that waits here for the holders, of whom this may be one.
    let is_holder = open.lock().live_holds_of(owner, now).next().is_some();
    let others_wait = waiters() > waiter.line.with(|line| line.len());
    if !others_wait && !is_holder {
        return None;
    }
    let wait = (Rc::clone(&waiter.line), waiter.place.get()?);
    let db = context.db();
    let in_the_way = |(line, place): &(Rc<LockLine>, Place), most: usize| {
        let mode = line.with(|line| line.waits_for(*place));
        let owners = |lock: &Lock| lock.owners_in_the_way(mode, now).take(most).cloned().collect();
        if Rc::ptr_eq(line, &waiter.line) {
            return owners(open.lock());
        }
        context.select_db(line.name.db);
        let name = Name::new(&line.name.key);
        let key = Key::open(context, &name, Access::Peek);
        let lock = key.as_ref().ok().and_then(Key::lock);
        lock.map_or_else(Vec::new, |lock| owners(&settled(context, &name, lock, now)))
    };
    let next_wait = |owner: &Owner| {
        with_lines(|lines| match lines.waits_of(owner) {
            [(line, place)] => Some((Rc::clone(line), *place)),
            _ => None,
        })
    };
    let found = find_cycle(owner, wait, in_the_way, next_wait);
    context.select_db(db);
    found.map(|steps| describe(&steps))
}

fn describe(steps: &[Step<(Rc<LockLine>, Place)>]) -> String {
    let holders = steps.iter().cycle().skip(1);
    let parts: Vec<String> = steps
        .iter()
        .zip(holders)
        .take(MAX_STEPS_SHOWN)
        .map(|(step, holder)| {
            let (owner, holder) = (readable(&step.owner.text()), readable(&holder.owner.text()));
            format!("{owner} waits for {} held by {holder}", readable(&step.lock.0.name.key))
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
