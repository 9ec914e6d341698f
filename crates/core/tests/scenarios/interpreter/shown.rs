//! The output of a scenario: locks, answers to waiters, events, the log, and the effects that replicas get.

use dlock_core::engine::{
    Answer, Detail, Event, Grant, Inspection, LogEntry, Output, ShownHold, ShownSession, ShownWaiter, SlotAnswer,
};
use dlock_core::{Change, Effect, Expiry, Hold, Keyspace, Lock, LockMode, Mode, Owner, UnixMs, decode_effect};
use dlock_testkit::keyspace::{MemoryKeyspace, Replicated, name};

use super::{BEGIN_MS, Interpreter, owner};
use crate::options::Words;

impl Interpreter {
    pub(super) fn check(&mut self, token: &str) -> String {
        let (token, lock) = (self.names.resolve(token), self.space.lock(&self.key).clone());
        let left = self.engine.check(name(&self.key), &lock, self.expiry(), self.space.now(), token);
        left.map_or("nil".to_owned(), |left| left.to_string())
    }

    fn inspect(&mut self, detail: &Detail) -> Option<Inspection> {
        let lock = self.space.lock(&self.key).clone();
        self.engine.inspect(name(&self.key), &lock, self.expiry(), self.space.now(), detail)
    }

    pub(super) fn info(&mut self, words: &mut Words) -> Vec<String> {
        let detail = match words.next() {
            None => Detail::Summary,
            Some("OWNER") => Detail::OfOwner(owner(words.word())),
            Some("FULL") => Detail::Full(usize::MAX),
            Some(word) => panic!("{word}: no such option"),
        };
        let Some(Inspection { summary, ttl, waiters, holds, .. }) = self.inspect(&detail) else {
            return vec!["nil".to_owned()];
        };
        let mode = match summary.mode {
            LockMode::Free => "free",
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
            LockMode::Both => "both",
        };
        let token = summary.token.map_or("nil".to_owned(), |token| self.names.name(token));
        let waiters = if waiters > 0 { format!(" waiters={waiters}") } else { String::new() };
        let (holders, count) = (summary.holders, summary.entries);
        let hold = |shown: &ShownHold| {
            let session = match &shown.session {
                None => String::new(),
                Some(ShownSession::Connection(client)) => format!(" session=c{}", client.0),
                Some(ShownSession::Named(id)) => format!(" session={}", id.as_bytes().escape_ascii()),
            };
            format!("{} ttl={}{session}", self.describe(&shown.hold), shown.ttl)
        };
        let holds = holds.iter().flatten().map(hold).collect();
        with_list(format!("{mode} holders={holders} count={count} token={token} ttl={ttl}{waiters}"), holds)
    }

    pub(super) fn queue(&mut self) -> Vec<String> {
        let shown = self.inspect(&Detail::Full(usize::MAX));
        let waiters = shown.and_then(|shown| shown.queue).unwrap_or_default();
        let line = |waiter: &ShownWaiter| {
            let permits =
                waiter.limit.map_or(String::new(), |limit| format!(" permits={} limit={limit}", waiter.permits));
            let keys = if waiter.keys > 1 { format!(" keys={}", waiter.keys) } else { String::new() };
            let (owner, mode) = (text(&waiter.owner), name_of(waiter.mode));
            format!("{owner} {mode} waiting={}{permits}{keys}", waiter.waiting)
        };
        list("waiters", waiters.iter().map(line).collect())
    }

    pub(super) fn wake(&self) -> String {
        match self.engine.wake_at() {
            None => "never".to_owned(),
            Some(at) if at <= self.space.now().ms() => "now".to_owned(),
            Some(at) => scenario_time(at).to_string(),
        }
    }

    pub(super) fn log(&mut self) -> Vec<String> {
        let line = |entry: &LogEntry| {
            let bytes = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let words = [
                Some(format!("{}. {:?}", entry.id, entry.event)),
                entry.db.filter(|db| *db > 0).map(|db| format!("db={db}")),
                entry.key.as_deref().map(bytes),
                entry.owner.as_deref().map(bytes),
                entry.mode.map(|mode| name_of(mode).to_owned()),
                entry.token.map(|token| self.names.name(token)),
                entry.waited.map(|ms| format!("waited={ms}")),
                entry.held.map(|ms| format!("held={ms}")),
                entry.client.as_ref().map(|(client, _)| format!("by c{}", client.0)),
            ];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        let lines = self.engine.log().entries().map(line).collect();
        self.engine.log_mut().reset();
        list("entries", lines)
    }

    pub(super) fn counts(&self) -> String {
        let counts = self.engine.stats().named().chain(self.engine.gauges().named());
        let counts = counts.filter(|(name, count)| *count > 0 && !name.contains("usec") && *name != "last_token");
        counts.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(" ")
    }

    /// Returns the token, and the number behind it if the request asks for one.
    pub(super) fn granted(&mut self, grant: Grant) -> String {
        let token = self.names.name_or_give(grant.token);
        match grant.slot {
            SlotAnswer::NotAsked => token,
            SlotAnswer::None => format!("{token} slot nil"),
            SlotAnswer::Number(slot) => format!("{token} slot {slot}"),
        }
    }

    /// Takes the outputs. Returns a line for each waiter that gets an answer, and keeps the events for `events`.
    pub(super) fn answers(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for output in self.engine.take_outputs() {
            match output {
                Output::Own(_, event) => self.events.push(name_of_event(event).to_owned()),
                Output::Event(_, key, event) => {
                    self.events.push(format!("{} {}", name_of_event(event), String::from_utf8_lossy(&key)));
                }
                Output::Modified(_, key) => self.events.push(format!("modified {}", String::from_utf8_lossy(&key))),
                Output::Answer(ticket, answer) => {
                    let (_, owner, _) = self.waiters.remove(&ticket).expect("it waits");
                    let answer = match answer {
                        Answer::Granted(grant, _) => self.granted(grant),
                        Answer::Nil => "nil".to_owned(),
                        Answer::Fault(fault) => fault.to_string(),
                    };
                    said.push(format!("w{ticket} {}: {answer}", text(&owner)));
                }
            }
        }
        said
    }

    /// Replays the changes of the primary on the replica, and checks that it has the holds of each lock of the primary.
    pub(super) fn replicate(&mut self) {
        let stream = self.space.take_stream();
        for (key, what) in &stream {
            let line = match what {
                Replicated::Effect(bytes) => self.effect(&decode_effect(bytes).expect("an effect")),
                Replicated::Release(release) => format!("release {} as it came", text(&release.owner)),
                Replicated::Removed => format!("del {}", String::from_utf8_lossy(&key.1)),
            };
            self.replicated.push(line);
        }
        MemoryKeyspace::replay_on(stream, &mut self.replica, &mut self.memory);
        for key in self.space.names() {
            let stored = |lock: &Lock| lock.stored_holds().cloned().collect::<Vec<_>>();
            assert_eq!(stored(self.replica.lock(&key)), stored(self.space.lock(&key)), "the replica differs");
        }
    }

    fn effect(&self, effect: &Effect) -> String {
        let what = match &effect.change {
            Change::Put { hold, expiry } => {
                let expiry = match expiry {
                    Expiry::Anew => "anew",
                    Expiry::Keep => "kept",
                    Expiry::Leave => "left",
                };
                format!("put {} until={} expiry={expiry}", self.describe(hold), scenario_time(hold.deadline))
            }
            Change::Remove { owner, mode } => format!("remove {} {}", text(owner), mode.map_or("both", name_of)),
            Change::Sweep => "sweep".to_owned(),
        };
        format!("{}: {what}", scenario_time(effect.clock))
    }

    pub(super) fn stored(&self) -> Vec<String> {
        let lapsed = |hold: &Hold| if hold.is_live(self.space.now().ms()) { "" } else { " lapsed" };
        let line =
            |hold: &Hold| format!("{} until={}{}", self.describe(hold), scenario_time(hold.deadline), lapsed(hold));
        list("stored", self.space.lock(&self.key).stored_holds().map(line).collect())
    }

    fn describe(&self, hold: &Hold) -> String {
        let (owner, mode, token) = (text(&hold.owner), name_of(hold.mode), self.names.name(hold.token));
        let request = hold.request().map_or(String::new(), |request| {
            format!(" request={:?}:{}", request.command(), request.id().escape_ascii()).to_lowercase()
        });
        let cap = hold.cap().map_or(String::new(), |cap| format!(" cap={}", scenario_time(cap)));
        let slot = hold.slot().map_or(String::new(), |slot| format!(" slot={slot}"));
        format!("{owner} {mode} count={} lease={} token={token}{request}{cap}{slot}", hold.count, hold.lease.get())
    }

    pub(super) fn ttl(&self) -> String {
        match self.space.expiry(&self.key) {
            None => "no key".to_owned(),
            Some(None) => "no end".to_owned(),
            Some(Some(end)) => (end - self.space.ms()).to_string(),
        }
    }

    fn expiry(&self) -> Option<UnixMs> {
        self.space.expiry(&self.key).flatten().map(UnixMs::new)
    }
}

fn scenario_time(time: UnixMs) -> u64 {
    time.get() - BEGIN_MS
}

fn text(owner: &Owner) -> String {
    String::from_utf8_lossy(&owner.text()).into_owned()
}

fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

fn name_of_event(event: Event) -> &'static str {
    match event {
        Event::Acquire => "acquire",
        Event::Release => "release",
        Event::Renew => "renew",
        Event::Wait => "wait",
        Event::Lapse => "lapse",
    }
}

pub(super) fn list(what: &str, lines: Vec<String>) -> Vec<String> {
    with_list(format!("{what}: {}", lines.len()), lines)
}

/// Returns a line, and the list that belongs to it.
fn with_list(line: String, list: Vec<String>) -> Vec<String> {
    std::iter::once(line).chain(list.iter().map(|item| format!("  {item}"))).collect()
}
