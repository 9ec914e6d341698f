//! The facts that `INFO` and `CHECK` show. Reading changes no lock: holds of ended sessions that are not released yet
//! are left out.

use std::iter::Peekable;

use crate::engine::state::engine::Engine;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::session_holds::{Ended, Rest, SessionHolds};
use crate::engine::state::sessions::Sessions;
use crate::holds::Sum;
use crate::{ClientId, Hold, Lock, LockMode, Mode, Name, Now, Owner, SessionId, SessionKey, Summary, Token, UnixMs};

/// How much `INFO` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The fields of every answer.
    Summary,
    /// The fields of every answer, and the holds of one owner.
    OfOwner(Owner),
    /// The fields of every answer, and all holds and waiters, at most this many of each.
    Full(usize),
}

/// The facts that `INFO` shows of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The live holds, summed up.
    pub summary: Summary,
    /// Milliseconds to the last deadline, 0 without a live hold.
    pub ttl: u64,
    /// How many requests wait.
    pub waiters: usize,
    /// The holds asked for.
    pub holds: Option<Vec<ShownHold>>,
    /// The waiters asked for.
    pub queue: Option<Vec<ShownWaiter>>,
}

/// A hold as `INFO` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownHold {
    /// The hold.
    pub hold: Hold,
    /// Milliseconds to its deadline.
    pub ttl: u64,
    /// The session that it is bound to.
    pub session: Option<ShownSession>,
    /// Milliseconds since the time in its token.
    pub held: u64,
    /// Milliseconds to its cap.
    pub cap: Option<u64>,
}

/// A session as `INFO` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownSession {
    /// The session of this connection.
    Connection(ClientId),
    /// The named session with this id.
    Named(SessionId),
}

/// A waiter as `INFO` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownWaiter {
    /// The owner.
    pub owner: Owner,
    /// The mode it asks for.
    pub mode: Mode,
    /// For how long it has waited, in ms.
    pub waiting: u64,
    /// The client.
    pub client: ClientId,
    /// How many entries it asks for.
    pub permits: u32,
    /// The most entries of all owners together, if it named a limit.
    pub limit: Option<u32>,
    /// How many locks it waits for together.
    pub keys: usize,
}

/// A lock in an open key, as a reader sees it.
struct View<'a> {
    lock: &'a Lock,
    /// The bindings of its holds.
    bound: Option<&'a SessionHolds>,
    sessions: &'a Sessions,
    key_end: UnixMs,
    now: UnixMs,
    /// Holds in a grace are looked at one by one if the lock stores at most this many holds.
    few: usize,
}

impl View<'_> {
    /// Returns when a live hold ends; `None` if it counts as released.
    fn end_of(&self, hold: &Hold) -> Option<UnixMs> {
        let session_end = self.bound.and_then(|bound| bound.end_of(hold));
        // A hold that had lapsed before its session ended stays lapsed; a grace may be longer than the rest of the
        // lease.
        let session_end = session_end.filter(|end| hold.is_live(end.at));
        let deadline = session_end.map_or(hold.deadline, |end| hold.up_to_cap(end.deadline()));
        Some(deadline.min(self.key_end)).filter(|end| *end > self.now)
    }

    /// Returns the bindings of a lock where sessions have ended whose holds no visit has settled yet.
    fn unsettled(&self) -> Option<&SessionHolds> {
        self.bound.filter(|bound| bound.has_ended())
    }

    /// Returns the holds to show of a lock where sessions have ended, each with its end, in no order. Holds that count
    /// as released are left out; holds in the grace of their session are included, even if their lease has run out
    /// since. `None` if no session has ended, or if sums and lists of tokens suffice.
    fn shown(&self) -> Option<Vec<(&Hold, UnixMs)>> {
        let bound = self.unsettled()?;
        // A lock with an exclusive hold has at most two holds: all of them are looked at.
        if self.lock.exclusive(UnixMs::ZERO).is_none() {
            let is_large = self.lock.stored_or_dropped() > self.few;
            if bound.have_sums_at(self.now) && (is_large || !bound.has_grace(self.now)) {
                return Some(Vec::new()).filter(|_| self.rest(bound).holds == 0);
            }
        } else if !bound.has_grace(self.now) && bound.ended_sum(self.now).holds >= self.lock.live_count(self.now) {
            return Some(Vec::new());
        }
        Some(self.lock.stored_in_no_order().filter_map(|hold| Some((hold, self.end_of(hold)?))).collect())
    }

    /// Returns the holds, summed up, and when the last of them ends.
    fn summary(&self, shown: Option<&[(&Hold, UnixMs)]>) -> (Summary, UnixMs) {
        match (shown, self.unsettled()) {
            _ if self.key_end <= self.now => (Summary::of(std::iter::empty()), self.now),
            (Some(shown), _) => {
                let last = shown.iter().map(|(_, end)| *end).max();
                (Summary::of(shown.iter().map(|(hold, _)| *hold)), last.unwrap_or(self.now))
            }
            (None, Some(bound)) => self.summary_of_the_rest(bound),
            (None, None) => {
                let summary = self.lock.summary(self.now);
                (summary, summary.deadline.unwrap_or(self.now).min(self.key_end))
            }
        }
    }

    /// Returns the sum of the holds to show of a lock without an exclusive hold.
    fn rest(&self, bound: &SessionHolds) -> Sum {
        let live = self.lock.holds.live_shared(self.now);
        if bound.are_graces_over(self.now) {
            return live.minus(bound.ended_sum(self.now));
        }
        live.minus(bound.ended_after(self.now)).plus(bound.graced(self.now).0)
    }

    /// Returns the summary of a lock without an exclusive hold where sessions have ended.
    fn summary_of_the_rest(&self, bound: &SessionHolds) -> (Summary, UnixMs) {
        let found = bound.rest(self.now).or_else(|| {
            let rest = self.find_rest(bound)?;
            bound.keep_rest(rest);
            Some(rest)
        });
        let Some(found) = found else { return (Summary::of(std::iter::empty()), self.now) };
        let rest = self.rest(bound);
        let (holders, entries, deadline) = (rest.holds as u64, rest.entries, found.deadline);
        let summary = Summary { mode: LockMode::Shared, holders, entries, token: found.token, deadline };
        (summary, deadline.map_or(self.now, |deadline| deadline.min(self.key_end)))
    }

    fn find_rest(&self, bound: &SessionHolds) -> Option<Rest> {
        let (graced, grace_end) = bound.graced(self.now);
        // A hold in a grace may outlive its lease.
        let clock = if graced.holds == 0 { self.now } else { UnixMs::ZERO };
        let highest = self.lock.holds.live_by_token(clock).next_back().filter(|hold| self.end_of(hold).is_some());
        let last = highest.or_else(|| match self.few_left(bound) {
            Some(few) => few.into_iter().max_by_key(|hold| hold.token),
            None => {
                let (mut found, is_cut) = self.rest_by_token(bound, Order::Falling, 1);
                // The highest token of all is shown then, which may be that of a released hold.
                let any = self.lock.holds.live_by_token(clock).next_back();
                found.pop().or(any.filter(|_| is_cut && self.rest(bound).holds > 0))
            }
        })?;
        let left = self.left_at(bound, self.now);
        let until = self.end_of(last).unwrap_or(UnixMs::new(self.now.get() + 1));
        let deadline = if grace_end >= self.lock.last_deadline() || left == 0 {
            grace_end?
        } else {
            self.time_with_at_most(bound, 0).max(grace_end)?
        };
        Some(Rest { token: Some(last.token), deadline: Some(deadline), from: self.now, until })
    }

    /// Returns how many shared holds are live at a time, without those of ended sessions.
    fn left_at(&self, bound: &SessionHolds, time: UnixMs) -> usize {
        self.lock.holds.live_shared(time).holds.saturating_sub(bound.ended_after(time).holds)
    }

    /// Returns the first time at which at most this many holds are live, without those of ended sessions. With 0, this
    /// is their last deadline.
    fn time_with_at_most(&self, bound: &SessionHolds, most: usize) -> Option<UnixMs> {
        let last = self.lock.holds.last_deadline()?.get();
        let (mut before, mut after) = (self.now.get(), last);
        while before < after {
            let time = before + (after - before) / 2;
            if self.left_at(bound, UnixMs::new(time)) > most { before = time + 1 } else { after = time }
        }
        Some(UnixMs::new(before))
    }

    /// Returns the shared holds to show, without those of ended sessions, in no order. Finds the deadlines of these
    /// holds and looks only at holds with one of the deadlines. `None` if there are many such holds, many deadlines, or
    /// many other holds with the same deadlines, or if a hold is in a grace.
    fn few_left(&self, bound: &SessionHolds) -> Option<Vec<&Hold>> {
        let all = self.left_at(bound, self.now);
        if all > FEW || bound.graced(self.now).0.holds > 0 {
            return None;
        }
        let (mut found, mut later, mut looks) = (Vec::with_capacity(all), 0, NEIGHBOURS);
        for _ in 0..=DEADLINES {
            if later == all {
                return Some(found).filter(|found| found.len() == all);
            }
            let deadline = self.time_with_at_most(bound, later)?;
            let before = UnixMs::new(deadline.get().checked_sub(1)?);
            let with_it = self.lock.holds.live_shared(before).minus(self.lock.holds.live_shared(deadline));
            looks = looks.checked_sub(with_it.holds)?;
            let holds = self.lock.holds.readers_with_deadline(deadline);
            found.extend(holds.filter(|hold| self.end_of(hold).is_some()));
            later = self.left_at(bound, before);
        }
        None
    }

    /// Returns the first shared holds to show of a lock where sessions have ended, ordered by token: `most` at most.
    /// Compares the list of the tokens of all live holds with that of ended sessions: a hold is looked up only where the
    /// lists differ, where it is in a grace, or where several holds may have one token. After `LOOKS` looks that found
    /// nothing to show, for either reason, leaves out the holds that need more, and returns `true` with the others.
    fn rest_by_token(&self, bound: &SessionHolds, order: Order, most: usize) -> (Vec<&Hold>, bool) {
        let mut ended = in_order(bound.ended_readers(self.now), order);
        let mut live = in_order(self.lock.holds.live_reader_tokens(self.now), order);
        let (mut found, mut alone, mut shared) = (Vec::new(), LOOKS, LOOKS);
        while found.len() < most {
            let next = live.peek().copied().into_iter().chain(ended.peek().map(|(token, _)| *token));
            let Some(token) = (if order == Order::Rising { next.min() } else { next.max() }) else { break };
            let ended = ended.next_if(|(next, _)| *next == token).map(|(_, ended)| ended);
            let is_alone = live.next_if_eq(&token).is_none() || live.next_if_eq(&token).is_none();
            while live.next_if_eq(&token).is_some() {}
            let looks = if is_alone { &mut alone } else { &mut shared };
            if *looks == 0 || is_alone && ended == Some(Ended::Released) {
                continue;
            }
            for hold in self.lock.holds.with_token(token) {
                if *looks == 0 || found.len() == most {
                    break;
                }
                match self.end_of(hold) {
                    Some(_) => found.push(hold),
                    None => *looks -= 1,
                }
            }
        }
        (found, alone == 0 || shared == 0)
    }

    fn show(&self, hold: &Hold) -> Option<ShownHold> {
        let ttl = self.end_of(hold)?.since(self.now);
        let key = self.bound.and_then(|bound| bound.session_of(&hold.owner, hold.mode));
        let session = key.and_then(|key| match key {
            SessionKey::Connection(client) => Some(ShownSession::Connection(client)),
            SessionKey::Named(named) => self.sessions.named.id_of(named).map(ShownSession::Named),
        });
        let held = self.now.get().saturating_sub(hold.token.get() / 1000);
        let cap = hold.cap().map(|cap| cap.since(self.now));
        Some(ShownHold { hold: hold.clone(), ttl, session, held, cap })
    }

    /// Returns the first holds by token, at most this many.
    fn holds(&self, shown: Option<&[(&Hold, UnixMs)]>, most: usize) -> Vec<ShownHold> {
        let mut held: Vec<&Hold> = match (shown, self.unsettled()) {
            (Some(shown), _) => shown.iter().map(|(hold, _)| *hold).collect(),
            (None, Some(bound)) => {
                self.few_left(bound).unwrap_or_else(|| self.rest_by_token(bound, Order::Rising, most).0)
            }
            (None, None) => self.lock.live_holds(self.now).take(most).collect(),
        };
        if most < held.len() {
            held.select_nth_unstable_by_key(most, |hold| hold.token);
            held.truncate(most);
        }
        held.sort_unstable_by_key(|hold| hold.token);
        held.into_iter().filter_map(|hold| self.show(hold)).collect()
    }
}

impl<T> Engine<T> {
    /// Returns what `INFO` shows of the lock in a key that ends at `key_end` (`None`: never). `None` if there is
    /// neither a live hold nor a waiter.
    pub fn inspect(
        &mut self,
        name: Name<'_>,
        lock: &Lock,
        key_end: Option<UnixMs>,
        now: Now,
        detail: &Detail,
    ) -> Option<Inspection> {
        let id = self.look_up_for(name, lock);
        let view = self.view_of(id, lock, key_end, now);
        let shown = view.shown();
        let (summary, end) = view.summary(shown.as_deref());
        let record = id.and_then(|id| self.registry.get(id));
        let waiters = record.map_or(0, |record| record.queue.len());
        if summary.mode == LockMode::Free && waiters == 0 {
            return None;
        }
        let ttl = end.since(view.now);
        let (holds, queue) = match detail {
            Detail::Summary => (None, None),
            Detail::OfOwner(owner) => {
                (Some(lock.live_holds_of(owner, UnixMs::ZERO).filter_map(|hold| view.show(hold)).collect()), None)
            }
            Detail::Full(most) => {
                let is_free = summary.mode == LockMode::Free;
                let holds = if is_free { Vec::new() } else { view.holds(shown.as_deref(), *most) };
                (Some(holds), Some(self.show_queue(record, *most, now)))
            }
        };
        Some(Inspection { summary, ttl, waiters, holds, queue })
    }

    /// Returns how many milliseconds are left of the live hold with this token, in a key that ends at `key_end`
    /// (`None`: never).
    pub fn check(
        &mut self,
        name: Name<'_>,
        lock: &Lock,
        key_end: Option<UnixMs>,
        now: Now,
        token: Token,
    ) -> Option<u64> {
        let id = self.look_up_for(name, lock);
        let view = self.view_of(id, lock, key_end, now);
        let ends = lock.with_token(token, UnixMs::ZERO).take(LOOKS).filter_map(|hold| view.end_of(hold));
        ends.max().map(|end| end.since(view.now))
    }

    /// Returns the record of this lock. Bindings of another value of the key are forgotten.
    fn look_up_for(&mut self, name: Name<'_>, lock: &Lock) -> Option<RecordId> {
        let id = self.look_up(name)?;
        if self.registry.get(id).is_some_and(|record| !record.bound.are_of(lock)) {
            self.forget_lock(id);
        }
        Some(id)
    }

    /// Returns the view of a lock in an open key that ends at `key_end` (`None`: never).
    fn view_of<'a>(&'a self, id: Option<RecordId>, lock: &'a Lock, key_end: Option<UnixMs>, now: Now) -> View<'a> {
        let bound = id.and_then(|id| self.registry.get(id)).map(|record| &record.bound);
        let (sessions, key_end) = (&self.parts.sessions, key_end.unwrap_or(UnixMs::MAX));
        View { lock, bound, sessions, key_end, now: now.ms(), few: LISTED }
    }

    fn show_queue(&self, record: Option<&Record>, most: usize, now: Now) -> Vec<ShownWaiter> {
        let Some(record) = record else { return Vec::new() };
        let show = |id: WaiterId| {
            let waiter = self.parts.waiters.get(id)?;
            Some(ShownWaiter {
                owner: waiter.request.owner.clone(),
                mode: waiter.mode(),
                waiting: now.us().saturating_sub(waiter.since_us) / 1000,
                client: waiter.client,
                permits: waiter.request.want.entries(),
                limit: waiter.request.want.limit(),
                keys: waiter.records.len(),
            })
        };
        record.queue.iter().filter_map(show).take(most).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Rising,
    Falling,
}

/// Returns a list in this order. `rising` has it from the lowest to the highest.
fn in_order<I>(mut rising: impl DoubleEndedIterator<Item = I>, order: Order) -> Peekable<impl Iterator<Item = I>> {
    let next = move || match order {
        Order::Rising => rising.next(),
        Order::Falling => rising.next_back(),
    };
    std::iter::from_fn(next).peekable()
}

/// How many holds that are not shown are looked at, and how many with one token by `CHECK`: several have the same only
/// after `MINTOKEN`.
const LOOKS: usize = 1000;
/// The most stored holds of a lock that are looked at one by one for holds in a grace: each look takes 0.2 to 1 µs.
const LISTED: usize = 1000;
/// How many holds `few_left` returns at most.
const FEW: usize = 64;
/// How many deadlines `few_left` looks at, at most.
const DEADLINES: usize = 16;
/// How many holds with one of these deadlines `few_left` looks at, at most.
const NEIGHBOURS: usize = 2000;

#[cfg(test)]
mod tests;
