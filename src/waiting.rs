//! Serving those who wait: who is granted when a lock is freed, and how a wait ends otherwise.
//!
//! A command serves the line of its lock before it looks at it, so that nobody passes, and after it changed it. What
//! else frees a lock (a lease that ends, `DEL`, expiry, …) stirs the line: a timer serves it in the same turn of the
//! event loop, outside any command, because a hook must not write.

use std::rc::Rc;

use dlock_core::args::Malformed;
use dlock_core::{Change, Effect, Entry, Refusal, Served, UnixMs, Waiters, Waiting};
use smallvec::SmallVec;

use crate::alarm::{Alarm, RETRY_MS, Turn};
use crate::error::Error;
use crate::ffi::MainThread;
use crate::ffi::context::{CanWrite, Context, Now};
use crate::ffi::key::{Name, WrongType};
use crate::lines::{LockLine, LockName, find, with_lines};
use crate::reply::Reply;
use crate::state::state;
use crate::store::{OpenLock, Replication, close};
use crate::waiter::Waiter;
use crate::{ended, expiry, sessions};

/// Those who have been served.
///
/// They are announced as soon as the key is closed, and told after the command that served them has replied: the server
/// writes to the client that was told last first, and that is the one who has waited.
#[derive(Default)]
pub struct Grants(SmallVec<[Rc<Waiter>; 2]>);

impl Grants {
    /// Adds one whose outcome is set and who has left the line.
    pub fn add(&mut self, waiter: Rc<Waiter>) {
        self.0.push(waiter);
    }

    /// Sends the keyspace events.
    pub fn announce(&self, context: &Context, name: &Name) {
        for waiter in &self.0 {
            let outcome = waiter.outcome.take();
            if let Some(Ok(Reply::Granted(..))) = outcome {
                context.notify(c"dlock.acquire", name);
            }
            waiter.outcome.set(outcome);
        }
    }

    /// Tells everybody. The key must be closed, since callbacks run in here.
    pub fn tell(self) {
        // Most commands grant nobody.
        if self.0.is_empty() {
            return;
        }
        for waiter in self.0 {
            tell(&waiter);
        }
    }
}

/// Brings a lock that was opened up to date: what is still to be released of it is released, and its line is served,
/// before a command looks at it.
pub fn served<'a>(mut open: OpenLock<'a>, now: Now, grants: &mut Grants) -> OpenLock<'a> {
    ended::settle(&mut open, now);
    serve(&mut open, now, grants);
    open
}

/// Closes a lock outside of a command: what happened is announced, and those who have been served are told.
pub fn close_and_tell(mut open: OpenLock, grants: Grants) {
    let (context, name) = (open.context, open.name);
    close(&mut open);
    grants.announce(context, name);
    grants.tell();
}

/// Serves the line of an open lock as far as it goes. O(1) for each who is served, and nothing if nobody waits.
pub fn serve(open: &mut OpenLock, now: Now, grants: &mut Grants) {
    let Some(line) = open.line.clone() else { return };
    if !open.is_changed() && line.is_settled(now.millis()) {
        return;
    }
    while let Some(served) = next(&line, open, now) {
        match served {
            Served::Refused(waiting, refusal) => {
                if refusal == Refusal::LeasePassed {
                    state().stats.wait_timeouts.count();
                }
                waiting.ticket.outcome.set(Some(refused(refusal)));
                grants.add(waiting.ticket);
            }
            // The lease was long enough when the client began to wait: the default of that time, or the owner has a hold now.
            Served::Granted { waiting, effect: Effect { change: Change::Put { hold, .. }, .. }, .. }
            | Served::Replayed(waiting, hold)
                if waiting.ticket.binds && !hold.lease.can_be_bound() =>
            {
                waiting.ticket.outcome.set(Some(Err(Malformed::SessionLease.into())));
                grants.add(waiting.ticket);
            }
            Served::Replayed(waiting, hold) => {
                if waiting.ticket.binds {
                    sessions::bind(line.name.db, &line.name.key, &hold, waiting.ticket.client);
                }
                state().stats.replays.count();
                waiting.ticket.outcome.set(Some(Ok(Reply::Granted(hold.token, None))));
                grants.add(waiting.ticket);
            }
            Served::Granted { waiting, token, entry, effect } => {
                let client = waiting.ticket.binds.then_some(waiting.ticket.client);
                bind_granted(open.context, open.name, &effect, entry, client);
                open.apply(effect, Replication::Effect);
                count_grant(entry, &waiting, now);
                let owner = waiting.ticket.made_up.then_some(waiting.owner);
                waiting.ticket.outcome.set(Some(Ok(Reply::Granted(token, owner))));
                grants.add(waiting.ticket);
            }
        }
    }
    settle(&line, open, now);
}

fn next(line: &Rc<LockLine>, open: &OpenLock, now: Now) -> Option<Served<Rc<Waiter>>> {
    let state = state();
    let served =
        line.with(|line| line.serve(open.lock(), now.millis(), state.settings.default_lease(), state.next_token(now)))?;
    let (Served::Granted { waiting, .. } | Served::Refused(waiting, _) | Served::Replayed(waiting, _)) = &served;
    if let Some(place) = waiting.ticket.place.take() {
        with_lines(|lines| lines.left(&waiting.owner, line, place));
    }
    Some(served)
}

/// After serving, if somebody still waits: drops what has lapsed, and sets the alarm to the next deadline.
fn settle(line: &Rc<LockLine>, open: &mut OpenLock, now: Now) {
    if line.is_empty() {
        if !open.is_changed() {
            // The last were sent away.
            expiry::look_again(LockName::new(line.name.db, &line.name.key));
        }
        return;
    }
    let clock = now.millis();
    if open.lock().has_lapsed(clock) {
        open.apply(Effect { clock, change: Change::Sweep, waiters: Waiters::Some }, Replication::Effect);
    }
    watch(line, open, clock);
}

/// Sets the alarm of a line to the first deadline, or to the end of the key if that is earlier. A line that waits
/// for no hold, because it could not be served, is tried again soon.
pub fn watch(line: &Rc<LockLine>, open: &OpenLock, now: UnixMs) {
    let key_end = open.end().map(|end| UnixMs::new(end.get() + 1));
    let first = open.lock().first_deadline().into_iter().chain(key_end).min();
    let alarm = first.unwrap_or(UnixMs::new(now.get() + u64::from(RETRY_MS)));
    with_lines(|lines| lines.set_alarm(line, Some(alarm)));
    arm();
}

/// Binds the hold a grant makes or enters to its client, if it asked for that. A new hold is nobody's otherwise.
pub fn bind_granted(context: &Context, name: &Name, effect: &Effect, entry: Entry, client: Option<u64>) {
    let Some(hold) = effect.hold() else { return };
    match (client, entry) {
        (Some(client), _) => sessions::bind(context.db(), name.bytes(), hold, client),
        (None, Entry::First) => sessions::unbind(context, name, &hold.owner, hold.mode),
        (None, Entry::Again) => {}
    }
}

fn count_grant(entry: Entry, waiting: &Waiting<Rc<Waiter>>, now: Now) {
    let stats = &state().stats;
    match entry {
        Entry::First => stats.grants.count(),
        Entry::Again => stats.reentries.count(),
    }
    let waited = now.micros().saturating_sub(waiting.ticket.since.micros());
    stats.wait_usec_total.add(waited);
    stats.wait_usec_max.raise(waited);
}

fn refused(refusal: Refusal) -> Result<Reply, Error> {
    match refusal {
        Refusal::LeasePassed | Refusal::Held | Refusal::Owned => Ok(Reply::Nil),
        Refusal::TooManyEntries => Err(Error::TooManyEntries),
        Refusal::NoToken => Err(Error::NoToken),
    }
}

/// Has a waiter that left its line told its outcome.
fn tell(waiter: &Waiter) {
    if let Some(blocked) = waiter.blocked.take() {
        blocked.unblock();
    }
}

/// Called by the server when a wait ends: replies with what was decided, or nil if its time ran out first.
pub fn answer(waiter: &Waiter, context: &Context) {
    match waiter.outcome.take() {
        Some(Ok(reply)) => reply.send(context),
        Some(Err(error)) => context.reply_error(&error.text("dlock")),
        None => {
            forget(waiter);
            state().stats.wait_timeouts.count();
            context.reply_nil();
        }
    }
}

/// Takes a waiter that is gone, for whatever reason, out of its line. If it was the head, the next may get in.
pub fn forget(waiter: &Waiter) {
    waiter.blocked.take();
    let Some(place) = waiter.place.take() else { return };
    let was_head = with_lines(|lines| lines.take(&waiter.line, place)) == Some(true);
    if waiter.line.is_empty() {
        // The key ends with its leases from now on.
        let LockName { db, key } = &waiter.line.name;
        expiry::look_again(LockName::new(*db, key));
    } else if was_head {
        with_lines(|lines| lines.stir(&waiter.line));
        SERVING.wake_in(0);
    }
}

/// Stirs the line of a lock whose key was removed or replaced. Called by hooks.
pub fn stir(db: i32, key: &[u8]) {
    if let Some(line) = find(db, key) {
        with_lines(|lines| lines.stir(&line));
        SERVING.wake_in(0);
    }
}

/// Stirs all lines, or those of one database. Called by hooks.
pub fn stir_all(db: Option<i32>) {
    let is_any = with_lines(|lines| {
        lines.stir_all(db);
        lines.is_stirred()
    });
    if is_any {
        SERVING.wake_in(0);
    }
}

/// Looks at every line that was stirred or whose alarm is due, a turn at a time.
fn serve_due(context: &Context) {
    if !SERVING.rings(context) {
        return;
    }
    if !context.flags().is_primary() {
        // The server unblocks everybody on demotion; nothing is granted here.
        return;
    }
    let mut turn = Turn::begin();
    loop {
        let now = Now::of_the_machine();
        let Some(line) = with_lines(|lines| lines.next_due(now.millis())) else { break };
        match serve_line(context, &line, now) {
            Looked::Done => {}
            Looked::ServerTakesNoWrites => {
                with_lines(|lines| lines.stir(&line));
                SERVING.wake_in(RETRY_MS);
                return;
            }
        }
        if turn.is_over() {
            SERVING.wake_in(1);
            return;
        }
    }
    arm();
}

enum Looked {
    Done,
    ServerTakesNoWrites,
}

fn serve_line(context: &Context, line: &Rc<LockLine>, now: Now) -> Looked {
    if line.is_empty() {
        return Looked::Done;
    }
    context.select_db(line.name.db);
    let name = Name::new(&line.name.key);
    match context.can_write(&name) {
        CanWrite::Yes => {}
        CanWrite::NotNow => return Looked::ServerTakesNoWrites,
        CanWrite::KeyIsElsewhere => {
            dismiss(line, &Error::TryAgain);
            return Looked::Done;
        }
    }
    let mut grants = Grants::default();
    match OpenLock::open(context, &name) {
        Ok(open) => close_and_tell(served(open, now, &mut grants), grants),
        Err(WrongType) => dismiss(line, &Error::WrongType),
    }
    Looked::Done
}

/// Sends everybody in a line away with an error.
fn dismiss(line: &Rc<LockLine>, error: &Error) {
    let gone: Vec<Rc<Waiter>> = line.with(|line| line.iter().map(|waiting| Rc::clone(&waiting.ticket)).collect());
    for waiter in &gone {
        if let Some(place) = waiter.place.take() {
            with_lines(|lines| lines.take(line, place));
        }
    }
    for waiter in gone {
        waiter.outcome.set(Some(Err(error.clone())));
        tell(&waiter);
    }
}

/// Has the lines looked at when the first alarm is due.
fn arm() {
    if let Some(at) = with_lines(|lines| lines.next_alarm()) {
        SERVING.wake_at(at);
    }
}

static SERVING: MainThread<Alarm> = MainThread::new(Alarm::new(serve_due));
