//! The facts that `INFO` and `CHECK` show. Reading changes no lock: holds of ended sessions that are not released yet
//! are left out.

use smallvec::SmallVec;

use crate::engine::state::engine::Engine;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::session_holds::{Rest, SessionHolds};
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
    record: Option<&'a Record>,
    sessions: &'a Sessions,
    key_end: UnixMs,
    now: UnixMs,
}

impl View<'_> {
    /// Returns when a live hold ends; `None` if it counts as released.
    fn end_of(&self, hold: &Hold) -> Option<UnixMs> {
        let session_end = self.record.and_then(|record| record.bound.end_of(hold));
        // A hold that had lapsed before its session ended stays lapsed; a grace may be longer than the rest of the
        // lease.
        let session_end = session_end.filter(|end| hold.is_live(end.at));
        let deadline = session_end.map_or(hold.deadline, |end| hold.up_to_cap(end.deadline()));
        Some(deadline.min(self.key_end)).filter(|end| *end > self.now)
    }

    /// Returns the live holds that count as released.
    fn ended_sum(&self) -> Sum {
        self.record.map_or(Sum::default(), |record| record.bound.ended_sum(self.now))
    }

    /// Returns the holds to show of a lock where sessions have ended, each with its end, in no order. Holds that count
    /// as released are left out; holds in the grace of their session are included, even if their lease has run out
    /// since. `None` if no session has ended, or if sums and lists of tokens suffice.
    fn shown(&self) -> Option<Vec<(&Hold, UnixMs)>> {
        let record = self.record.filter(|record| record.bound.has_ended())?;
        // Without a grace, sums suffice if all live holds count as released, or if all are shared.
        if !record.bound.has_grace(self.now) {
            if self.ended_sum().holds >= self.lock.live_count(self.now) {
                return Some(Vec::new());
            }
            // A lock with an exclusive hold has at most two holds: all of them are looked at.
            self.lock.exclusive(UnixMs::ZERO)?;
        }
        Some(self.lock.stored_in_no_order().filter_map(|hold| Some((hold, self.end_of(hold)?))).collect())
    }

    /// Returns the holds, summed up, and when the last of them ends.
    fn summary(&self, shown: Option<&[(&Hold, UnixMs)]>) -> (Summary, UnixMs) {
        match shown {
            _ if self.key_end <= self.now => (Summary::of(std::iter::empty()), self.now),
            Some(shown) => {
                let last = shown.iter().map(|(_, end)| *end).max();
                (Summary::of(shown.iter().map(|(hold, _)| *hold)), last.unwrap_or(self.now))
            }
            None if self.ended_sum().holds > 0 => self.summary_of_the_rest(),
            None => {
                let summary = self.lock.summary(self.now);
                (summary, summary.deadline.unwrap_or(self.now).min(self.key_end))
            }
        }
    }

    /// Returns the summary of a lock without an exclusive hold, of whose live holds some, not all, count as released.
    fn summary_of_the_rest(&self) -> (Summary, UnixMs) {
        let rest = self.lock.holds.live_shared(self.now).minus(self.ended_sum());
        let found = self.record.map(|record| &record.bound).and_then(|bound| {
            bound.rest(self.now).or_else(|| {
                let rest = self.find_rest(bound)?;
                bound.keep_rest(rest);
                Some(rest)
            })
        });
        let (token, deadline) = found.map_or((None, None), |rest| (rest.token, rest.deadline));
        let (holders, entries) = (rest.holds as u64, rest.entries);
        let summary = Summary { mode: LockMode::Shared, holders, entries, token, deadline };
        (summary, deadline.map_or(self.now, |deadline| deadline.min(self.key_end)))
    }

    fn find_rest(&self, bound: &SessionHolds) -> Option<Rest> {
        let highest = self.lock.holds.by_token().next_back().filter(|hold| self.end_of(hold).is_some());
        let last = highest.or_else(|| match self.few_left(bound) {
            Some(few) => few.into_iter().max_by_key(|hold| hold.token),
            None => self.rest_by_token(bound, Order::Falling).next(),
        })?;
        let deadline = self.time_with_at_most(bound, 0)?;
        Some(Rest { token: Some(last.token), deadline: Some(deadline), from: self.now, until: last.deadline })
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
    /// many other holds with the same deadlines.
    fn few_left(&self, bound: &SessionHolds) -> Option<Vec<&Hold>> {
        let all = self.left_at(bound, self.now);
        if all > FEW {
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

    /// Returns the shared holds to show, without those of ended sessions, ordered by token. Compares the list of all
    /// tokens with that of ended sessions: a hold is looked up only where the lists differ, or where several holds may
    /// have one token.
    fn rest_by_token<'s>(&'s self, bound: &'s SessionHolds, order: Order) -> impl Iterator<Item = &'s Hold> {
        let mut ended = InOrder::of(bound.ended_reader_tokens(self.now), order);
        let mut tokens = InOrder::of(self.lock.holds.reader_tokens(), order);
        let mut found: SmallVec<[&'s Hold; 1]> = SmallVec::new();
        std::iter::from_fn(move || {
            while found.is_empty() {
                let (token, is_alone) = tokens.next_group()?;
                ended.skip_before(token);
                if !(is_alone && ended.peek() == Some(token)) {
                    let with_token = self.lock.holds.with_token(token);
                    found.extend(with_token.filter(|hold| self.end_of(hold).is_some()).take(LOOKS));
                }
            }
            found.pop()
        })
    }

    fn show(&self, hold: &Hold) -> Option<ShownHold> {
        let ttl = self.end_of(hold)?.since(self.now);
        let key = self.record.and_then(|record| record.bound.session_of(&hold.owner, hold.mode));
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
        let ended = self.record.map(|record| &record.bound).filter(|bound| bound.has_ended());
        let mut held: Vec<&Hold> = match (shown, ended) {
            (Some(shown), _) => shown.iter().map(|(hold, _)| *hold).collect(),
            (None, Some(bound)) => {
                self.few_left(bound).unwrap_or_else(|| self.rest_by_token(bound, Order::Rising).take(most).collect())
            }
            (None, None) if self.lock.lapsed(self.now) <= self.lock.stored() / 2 => {
                return self.lock.live_holds(self.now).filter_map(|hold| self.show(hold)).take(most).collect();
            }
            // Most holds have lapsed: looking at the live ones takes fewer steps.
            (None, None) => self.lock.live_by_deadline(self.now).collect(),
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
        let waiters = view.record.map_or(0, |record| record.queue.len());
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
                (Some(holds), Some(self.show_queue(view.record, *most, now)))
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
        let record = id.and_then(|id| self.registry.get(id));
        View { lock, record, sessions: &self.parts.sessions, key_end: key_end.unwrap_or(UnixMs::MAX), now: now.ms() }
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

/// A list of tokens in one of its two orders.
struct InOrder<I: DoubleEndedIterator<Item = Token>> {
    rest: I,
    next: Option<Token>,
    order: Order,
}

impl<I: DoubleEndedIterator<Item = Token>> InOrder<I> {
    /// Returns the list in this order. `rising` has the tokens from the lowest to the highest.
    fn of(rising: I, order: Order) -> InOrder<I> {
        let mut list = InOrder { rest: rising, next: None, order };
        list.advance();
        list
    }

    fn advance(&mut self) {
        self.next = match self.order {
            Order::Rising => self.rest.next(),
            Order::Falling => self.rest.next_back(),
        };
    }

    fn peek(&self) -> Option<Token> {
        self.next
    }

    /// Takes the next token with all its repetitions. Returns it, and whether it had none.
    fn next_group(&mut self) -> Option<(Token, bool)> {
        let token = self.next?;
        self.advance();
        let is_alone = self.next != Some(token);
        while self.next == Some(token) {
            self.advance();
        }
        Some((token, is_alone))
    }

    /// Skips the tokens that come before this one in the order.
    fn skip_before(&mut self, token: Token) {
        while let Some(next) = self.next {
            let comes_before = if self.order == Order::Rising { next < token } else { next > token };
            if !comes_before {
                return;
            }
            self.advance();
        }
    }
}

/// How many holds with one token are looked at: several have the same only after `MINTOKEN`.
const LOOKS: usize = 1000;
/// How many holds `few_left` returns at most.
const FEW: usize = 64;
/// How many deadlines `few_left` looks at, at most.
const DEADLINES: usize = 16;
/// How many holds with one of these deadlines `few_left` looks at, at most.
const NEIGHBOURS: usize = 2000;
