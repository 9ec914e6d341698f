//! The engine's results for others: outputs for the caller to send, counters, and the log.

pub(crate) mod grant;
pub(crate) mod histogram;
pub(crate) mod log;
pub(crate) mod log_entry;
pub(crate) mod log_ring;
pub(crate) mod stats;

use std::ffi::CStr;
use std::rc::Rc;

use crate::engine::state::call::Call;
use crate::engine::state::fault::Fault;
use crate::engine::state::outbox::grant::Grant;
use crate::engine::state::outbox::log::{Log, sample_of};
use crate::engine::state::outbox::log_entry::{LogEntry, LogEvent, held_us};
use crate::engine::state::outbox::stats::Stats;
use crate::engine::state::waiting::Waiter;
use crate::lock::Refusal;
use crate::{Hold, Name, Now, Owner, Request, SessionId, SessionKey, Token, UnixMs};

/// An output, which the caller has to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// A keyspace event on the key of the running command with this index.
    Own(usize, Event),
    /// A keyspace event.
    Event(i32, Rc<[u8]>, Event),
    /// `WATCH` and `CLIENT TRACKING` hear that `INFO` shows something else.
    Modified(i32, Rc<[u8]>),
    /// The answer to a request that waited.
    Answer(T, Answer),
}

/// A keyspace event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An owner entered.
    Acquire,
    /// Entries were released, by command or by the end of a session.
    Release,
    /// A deadline was set by command.
    Renew,
    /// A request queued.
    Wait,
    /// A lease ran out.
    Lapse,
}

impl Event {
    /// Returns its name.
    #[inline]
    pub fn name(self) -> &'static CStr {
        match self {
            Event::Acquire => c"dlock.acquire",
            Event::Release => c"dlock.release",
            Event::Renew => c"dlock.renew",
            Event::Wait => c"dlock.wait",
            Event::Lapse => c"dlock.lapse",
        }
    }
}

/// The answer to a request that waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A grant, and the owner if the server drew it.
    Granted(Grant, Option<Owner>),
    /// Nil.
    Nil,
    /// An error.
    Fault(Fault),
}

#[derive(Clone, Debug)]
pub(crate) struct Outbox<T> {
    pub stats: Stats,
    pub log: Log,
    /// The only output so far, if it is an event on a key of the command: nearly every command has no other output.
    own_event: Option<(usize, Event)>,
    outputs: Vec<Output<T>>,
    tell: fn(&T, &Answer),
}

impl<T> Outbox<T> {
    pub(crate) fn new() -> Outbox<T> {
        Outbox { stats: Stats::default(), log: Log::new(), own_event: None, outputs: Vec::new(), tell: |_, _| {} }
    }

    pub(crate) fn push(&mut self, output: Output<T>) {
        self.list_own_event();
        self.outputs.push(output);
    }

    /// Adds an event on the key of the command with this index.
    #[inline]
    pub(crate) fn push_own_event(&mut self, index: usize, event: Event) {
        if self.own_event.is_none() && self.outputs.is_empty() {
            self.own_event = Some((index, event));
        } else {
            self.push(Output::Own(index, event));
        }
    }

    /// Takes the event on an own key of the command, if there is no other output.
    #[inline]
    pub(crate) fn take_own_event(&mut self) -> Option<(usize, Event)> {
        self.own_event.take()
    }

    /// Moves the own event into the list: another output follows it, or the list is taken.
    fn list_own_event(&mut self) {
        if let Some((index, event)) = self.own_event.take() {
            self.outputs.push(Output::Own(index, event));
        }
    }

    /// Takes the outputs, and leaves `spare` in their place.
    #[inline]
    pub(crate) fn swap(&mut self, spare: Vec<Output<T>>) -> Vec<Output<T>> {
        self.list_own_event();
        std::mem::replace(&mut self.outputs, spare)
    }

    /// Answers a waiter. It has left its queues.
    pub(crate) fn answer(&mut self, waiter: Waiter<T>, answer: Answer) {
        let answer = match answer {
            Answer::Granted(grant, None) if waiter.request.is_owner_drawn => {
                Answer::Granted(grant, Some(waiter.request.owner))
            }
            answer => answer,
        };
        self.answer_to(waiter.ticket, answer);
    }

    /// Answers the request with this ticket.
    pub(crate) fn answer_to(&mut self, ticket: T, answer: Answer) {
        (self.tell)(&ticket, &answer);
        self.push(Output::Answer(ticket, answer));
    }

    /// Sets the function that learns each answer at once.
    pub(crate) fn tell_by(&mut self, tell: fn(&T, &Answer)) {
        self.tell = tell;
    }

    /// Counts a wait that ends with a grant, and logs it if it was long.
    pub(crate) fn note_granted(&mut self, waiter: &Waiter<T>, name: Name<'_>, token: Token, now: Now) {
        let waited = now.us().saturating_sub(waiter.since_us);
        self.stats.wait_usec_total = self.stats.wait_usec_total.wrapping_add(waited);
        self.stats.wait_usec_max = self.stats.wait_usec_max.max(waited);
        self.log.waits.record(waited);
        self.log_wait(waiter, name, LogEvent::Wait, Some(token), now);
    }

    /// Returns the answer to a waiter that can never get in. `name` is the first of its locks.
    pub(crate) fn refuse_waiter(&mut self, waiter: &Waiter<T>, name: Name<'_>, refusal: Refusal, now: Now) -> Answer {
        match refusal {
            Refusal::LeasePassed => {
                self.stats.wait_timeouts += 1;
                self.note_timeout(waiter, name, now);
                Answer::Nil
            }
            Refusal::TooManyEntries => Answer::Fault(Fault::TooManyEntries),
            Refusal::NoToken => Answer::Fault(Fault::NoToken),
            Refusal::Held | Refusal::Owned | Refusal::OverLimit | Refusal::OnlyHolder => {
                debug_assert!(false, "a request waits while {refusal:?}");
                Answer::Nil
            }
        }
    }

    /// Logs a wait that ends without a grant, if it was long. `name` is the first of its locks.
    pub(crate) fn note_timeout(&mut self, waiter: &Waiter<T>, name: Name<'_>, now: Now) {
        self.log_wait(waiter, name, LogEvent::Timeout, None, now);
    }

    fn log_wait(&mut self, waiter: &Waiter<T>, name: Name<'_>, event: LogEvent, token: Option<Token>, now: Now) {
        let waited = now.ms().since(Now::from_us(waiter.since_us).ms());
        if self.log.shows_wait(waited) {
            let entry = LogEntry::new(event, now.ms()).of(name, &waiter.request.owner, waiter.mode());
            self.log.add(LogEntry { token, waited: Some(waited), ..entry }, Some(waiter.client));
        }
    }

    /// Counts and logs a request that gets `DEADLOCK`.
    pub(crate) fn deadlock(&mut self, call: &Call<'_>, request: &Request, how: String) -> Fault {
        self.stats.deadlocks += 1;
        let entry = LogEntry::new(LogEvent::Deadlock, call.now.ms());
        self.log.add(entry.of(call.name, &request.owner, request.want.mode()), Some(call.client));
        Fault::Deadlock(how)
    }

    /// Counts a hold that a command releases in full, and logs it if it was long.
    #[inline]
    pub(crate) fn note_release(&mut self, call: &Call<'_>, hold: &Hold) {
        let now = call.now.ms();
        self.log.holds.record(held_us(hold.token, call.now.us()));
        if self.log.shows_hold(hold.token, now) {
            let entry = LogEntry::new(LogEvent::Hold, now).of(call.name, &hold.owner, hold.mode);
            self.log.add(entry.held(hold.token, now), Some(call.client));
        }
    }

    /// Logs that a client releases a hold that is not its own.
    pub(crate) fn note_break(&mut self, call: &Call<'_>, hold: &Hold) {
        let now = call.now.ms();
        let entry = LogEntry::new(LogEvent::Break, now).of(call.name, &hold.owner, hold.mode);
        self.log.add(entry.held(hold.token, now), Some(call.client));
    }

    /// Logs a hold that ends without a release. `key` is the session that it is bound to, `session` the id of that.
    pub(crate) fn log_end(
        &mut self,
        name: Name<'_>,
        hold: &Hold,
        (key, session): (Option<SessionKey>, Option<SessionId>),
        now: UnixMs,
    ) {
        let event = match hold.is_live(now) {
            true => LogEvent::Delete,
            false if hold.has_reached_cap() => LogEvent::Cap,
            false => LogEvent::Lapse,
        };
        let entry = LogEntry::new(event, now).of(name, &hold.owner, hold.mode);
        let entry = LogEntry { session, ..entry };
        self.log.add(entry.held(hold.token, hold.deadline.min(now)), key.and_then(SessionKey::connection));
    }

    /// Records how long `count` holds, which end with their sessions, were held. The `tokens` of some of them are the
    /// sample.
    pub(crate) fn note_session_ends(&mut self, tokens: impl Iterator<Item = Token>, count: u64, now_us: u64) {
        self.log.holds.record_all(&sample_of(tokens, now_us), count);
    }
}
