//! A server for scenarios: the engine and the time are real, keys are in memory, and a replica follows.
//!
//! | command | prints |
//! |---|---|
//! | `at MS` | nothing: sets the time to MS ms after the scenario began. No timer runs |
//! | `on KEY`, `on DB/KEY` | nothing: the commands that follow are about this key |
//! | `tick` | the timer runs until it has nothing to do: a line for each waiter that gets an answer, or `nothing` |
//! | `wake` | when the timer wants to run: `now`, a time, or `never` |
//! | `acquire`, `racquire`, `rlock`, `wlock` `OWNER [lease] [REQUEST id] [SESSION]` | the token, nil or an error |
//! | `sacquire OWNER LIMIT [PERMITS k] …`, `macquire KEY,KEY OWNER …` | the same |
//! | the same with `BLOCK` | that it waits, and as whom: `w1`, `w2`, … |
//! | `release OWNER [READ\|WRITE] [ALL\|PERMITS k] [TOKEN t] [REQUEST id]` | as `DLOCK.RELEASE` |
//! | `renew OWNER [lease] [READ\|WRITE] [SESSION] [TOKEN t\|MINTOKEN t]` | as `DLOCK.RENEW` |
//! | `check t`, `info [OWNER owner\|FULL]` | as `DLOCK.CHECK` and `DLOCK.INFO`, a line for each hold |
//! | `queue` | a line for each waiter, the head first |
//! | `stored` | a line for each hold, lapsed ones too |
//! | `expire MS`, `persist`, `ttl`, `del`, `rename KEY`, `set`, `flush [DB]`, `swap A B` | as Redis |
//! | `restore KEY [MS]` | `OK`: the key gets what `DUMP` says of another, with this TTL |
//! | `evict` | the server removes what has expired |
//! | `leave w`, `time-out w`, `gone c` | a waiter leaves; its time is over; the connection of a client ends |
//! | `pause`, `resume`, `demote`, `promote`, `reload`, `restart` | what happens to the server |
//! | `permit full\|release-only\|elsewhere` | nothing: what the server lets timers do to the key |
//! | `blind yes\|no` | nothing: whether clients may read only the keys that they name |
//! | `grace MS\|none`, `max-waiters N`, `default-lease MS` | nothing: what the operator sets |
//! | `log-wait MS`, `log-hold MS`, `log-max-len N` | nothing: what the operator wants to see in the log |
//! | `log` | a line for each entry, the newest first; then the log is empty |
//! | `replicated`, `events`, `counts` | what was replicated and sent since it was last asked; counters above 0 |
//!
//! Every command that lets waiters in prints a line for each of them behind its own. `BY c2` names the client; without
//! it, it is `c1`. `lease` is `EX s`, `PX ms`, `EXAT s` or `PXAT ms`; none: 30 s.

use std::collections::BTreeMap;

use dlock_core::engine::{
    Answer, Ask, Call, Detail, Entered, Event, Fault, Input, Inspection, Left, LogEntry, LogSettings, Lost, Output,
    Peer, Permission, Role, Settings, ShownHold, WaiterId,
};
use dlock_core::{
    Change, ClientId, Command, Effect, Engine, Entries, Expiry, Hold, Keyspace, Lease, Lock, LockMode, Memory, Mode,
    Name, Owner, Renew, RenewToken, TokenClock, UnixMs, Want, decode_effect,
};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, Replicated, RunningRelease, name};

use crate::options::{Options, Words};
use crate::tokens::TokenNames;

pub struct Stage {
    key: KeyName,
    space: MemoryKeyspace,
    engine: Engine<u64>,
    log_settings: LogSettings,
    role: Role,
    replica: MemoryKeyspace,
    memory: Memory,
    waiters: BTreeMap<u64, (WaiterId, Owner, ClientId)>,
    tickets: u64,
    names: TokenNames,
    replicated: Vec<String>,
    events: Vec<String>,
    /// What waiters were answered before the running command had its own answer.
    answered: Vec<String>,
}

impl Default for Stage {
    fn default() -> Stage {
        let settings = Settings { default_lease: DEFAULT_LEASE, max_waiters: None, session_grace: None };
        let mut engine = Engine::new(7, settings);
        engine.log.identify_by(|_| Some(Peer { addr: [].into(), name: None }));
        Stage {
            key: (0, b"lock".to_vec()),
            space: MemoryKeyspace::at(BEGIN_MS),
            engine,
            log_settings: LogSettings::default(),
            role: Role::Primary,
            replica: MemoryKeyspace::default(),
            memory: Memory::new(),
            waiters: BTreeMap::new(),
            tickets: 0,
            names: TokenNames::default(),
            replicated: Vec::new(),
            events: Vec::new(),
            answered: Vec::new(),
        }
    }
}

impl Stage {
    /// Does what a line of a scenario says, and returns what it prints.
    pub fn run(&mut self, line: &str) -> Vec<String> {
        let mut words = Words(line.split_whitespace());
        let command = words.word();
        let mut said = self.dispatch(command, &mut words);
        assert_eq!(words.next(), None, "left over in {line}");
        for key in self.space.take_unlinked() {
            self.engine.input(Input::Removed(name(&key)), self.space.now());
        }
        said.append(&mut self.answered);
        said.extend(self.answers());
        self.replicate();
        if said.is_empty() && command == "tick" { vec!["nothing".to_owned()] } else { said }
    }

    fn dispatch(&mut self, command: &str, words: &mut Words) -> Vec<String> {
        let line = match command {
            "at" => return self.nothing(|this| this.space.set_now_us((BEGIN_MS + words.number()) * 1000)),
            "on" => return self.nothing(|this| this.key = key_name(words.word())),
            "tick" => return self.tick(),
            "wake" => self.wake(),
            "acquire" => self.acquire(Command::Acquire, words),
            "racquire" => self.acquire(Command::Racquire, words),
            "wlock" => self.acquire(Command::Wlock, words),
            "rlock" => self.acquire(Command::Rlock, words),
            "sacquire" => self.acquire(Command::Sacquire, words),
            "macquire" => self.acquire(Command::Macquire, words),
            "release" => self.release(words),
            "renew" => self.renew(words),
            "check" => self.check(words.word()),
            "info" => return self.info(words),
            "queue" => return self.queue(),
            "stored" => return self.stored(),
            "ttl" => self.ttl(),
            "leave" => self.leave(words.word()),
            "time-out" => self.time_out(words.word()),
            "log" => return self.log(),
            "log-wait" | "log-hold" | "log-max-len" => {
                return self.nothing(|this| this.set_log(command, words.number()));
            }
            "gone" => return self.nothing(|this| this.gone(words.client())),
            "replicated" => return list("effects", std::mem::take(&mut self.replicated)),
            "events" => return list("events", std::mem::take(&mut self.events)),
            "counts" => self.counts(),
            "permit" | "blind" | "grace" | "max-waiters" | "default-lease" => {
                return self.nothing(|this| this.set(command, words.word()));
            }
            _ => self.change_keys(command, words),
        };
        vec![line]
    }

    fn nothing(&mut self, act: impl FnOnce(&mut Stage)) -> Vec<String> {
        act(self);
        Vec::new()
    }

    // Commands of the module.

    fn acquire(&mut self, command: Command, words: &mut Words) -> String {
        let keys: Vec<KeyName> = match command {
            Command::Macquire => words.word().split(',').map(key_name).collect(),
            _ => vec![self.key.clone()],
        };
        let owner = owner(words.word());
        let limit = (command == Command::Sacquire).then(|| words.nonzero());
        let options = Options::parse(command, words, &mut self.names);
        let want = match (command, limit) {
            (_, Some(limit)) => Want::Permits { permits: options.permits, limit },
            (Command::Racquire | Command::Wlock, None) => Want::Exclusive,
            (Command::Rlock, None) => Want::Shared,
            _ => Want::ExclusiveOnce,
        };
        let Options { lease, request, binds, client, blocks, .. } = options;
        let ask = Ask { request, binds, ..Ask::new(owner.clone(), want, lease) };
        let names: Vec<Name<'_>> = keys.iter().map(name).collect();
        let call = Call { name: names[0], now: self.space.now(), client };
        let ticket = self.tickets + 1;
        let wait = blocks.then_some(|_: WaiterId| ticket);
        let entered = match command {
            Command::Macquire => self.engine.acquire_all(&mut self.space, call, &names, &ask, wait),
            _ => self.engine.acquire(&mut self.space, call, &ask, wait),
        };
        let waits_already = |id| self.waiters.iter().find(|(_, (other, ..))| *other == id).map(|(first, _)| *first);
        let first = match entered {
            Ok(Entered::Waiting(id)) => waits_already(id),
            _ => None,
        };
        self.answered = self.answers();
        match entered {
            Ok(Entered::Granted(token)) => self.names.name_or_give(token),
            Ok(Entered::Replayed(token)) => format!("{} (replayed)", self.names.name(token)),
            Ok(Entered::Refused) => "nil".to_owned(),
            Ok(Entered::Waiting(id)) => {
                self.tickets = ticket;
                self.waiters.insert(ticket, (id, owner, client));
                first.map_or(format!("w{ticket} waits"), |first| format!("w{ticket} waits in place of w{first}"))
            }
            Err(fault) => error(&fault),
        }
    }

    fn release(&mut self, words: &mut Words) -> String {
        let owner = owner(words.word());
        let Options { mode, entries, token, request, client, .. } =
            Options::parse(Command::Release, words, &mut self.names);
        let entries = entries.unwrap_or(Entries::ONE);
        let running = RunningRelease { owner, mode, entries, token, request };
        self.space.running = Some(running.clone());
        let call = Call { name: name(&self.key), now: self.space.now(), client };
        let replays = self.engine.stats.replays;
        let left = self.engine.release(&mut self.space, call, &running.request());
        self.space.running = None;
        match left {
            Ok(Left::NotHeld) => "nil".to_owned(),
            Ok(Left::Partly) if self.engine.stats.replays > replays => "0 (replayed)".to_owned(),
            Ok(Left::Partly) => "0".to_owned(),
            Ok(Left::Fully) => "1".to_owned(),
            Err(fault) => error(&fault),
        }
    }

    fn renew(&mut self, words: &mut Words) -> String {
        let owner = owner(words.word());
        // A renewal has no REQUEST.
        let Options { lease, mode, token, min_token, binds, client, .. } =
            Options::parse(Command::Release, words, &mut self.names);
        let token = match (token, min_token) {
            (Some(token), _) => RenewToken::Is(token),
            (None, Some(floor)) if TokenClock::is_too_far_ahead(floor, self.space.now().us()) => {
                return "ERR more than an hour ahead".to_owned();
            }
            (None, Some(floor)) => RenewToken::AtLeast(floor),
            (None, None) => RenewToken::Any,
        };
        let call = Call { name: name(&self.key), now: self.space.now(), client };
        let request = Renew { owner: &owner, mode, lease, token };
        match self.engine.renew(&mut self.space, call, &request, binds) {
            Ok(true) => {
                min_token.into_iter().for_each(|floor| self.names.lift(floor));
                "1".to_owned()
            }
            Ok(false) => "nil".to_owned(),
            Err(fault) => error(&fault),
        }
    }

    fn check(&mut self, token: &str) -> String {
        let (token, lock) = (self.names.resolve(token), self.space.lock(&self.key).clone());
        let left = self.engine.check(name(&self.key), &lock, self.expiry(), self.space.now(), token);
        left.map_or("nil".to_owned(), |left| left.to_string())
    }

    fn inspect(&mut self, detail: &Detail) -> Option<Inspection> {
        let lock = self.space.lock(&self.key).clone();
        self.engine.inspect(name(&self.key), &lock, self.expiry(), self.space.now(), detail)
    }

    fn info(&mut self, words: &mut Words) -> Vec<String> {
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
            let session = shown.session.map_or(String::new(), |client| format!(" session=c{}", client.0));
            format!("{} ttl={}{session}", self.describe(&shown.hold), shown.ttl)
        };
        let holds = holds.iter().flatten().map(hold).collect();
        with_list(format!("{mode} holders={holders} count={count} token={token} ttl={ttl}{waiters}"), holds)
    }

    fn queue(&mut self) -> Vec<String> {
        let shown = self.inspect(&Detail::Full(usize::MAX));
        let waiters = shown.and_then(|shown| shown.queue).unwrap_or_default();
        let line = |waiter: &dlock_core::engine::ShownWaiter| {
            let permits =
                waiter.limit.map_or(String::new(), |limit| format!(" permits={} limit={limit}", waiter.permits));
            let keys = if waiter.keys > 1 { format!(" keys={}", waiter.keys) } else { String::new() };
            let (owner, mode) = (text(&waiter.owner), name_of(waiter.mode));
            format!("{owner} {mode} waiting={}{permits}{keys}", waiter.waiting)
        };
        list("waiters", waiters.iter().map(line).collect())
    }

    // The timer, clients, and what happens to the server.

    fn tick(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for _ in 0..100 {
            if self.engine.wake_at().is_none_or(|at| at > self.space.now().ms()) {
                return said;
            }
            self.engine.tick(&mut self.space, self.role);
            said.extend(self.answers());
        }
        panic!("the timer has always something to do");
    }

    fn wake(&self) -> String {
        match self.engine.wake_at() {
            None => "never".to_owned(),
            Some(at) if at <= self.space.now().ms() => "now".to_owned(),
            Some(at) => story_time(at).to_string(),
        }
    }

    fn leave(&mut self, waiter: &str) -> String {
        let ticket = waiter.strip_prefix('w').and_then(|number| number.parse().ok());
        let ticket: u64 = ticket.unwrap_or_else(|| panic!("{waiter}: waiters are called w1, w2, …"));
        let Some((id, ..)) = self.waiters.remove(&ticket) else { return "it does not wait".to_owned() };
        assert_eq!(self.engine.abandon(id), Some(ticket));
        format!("{waiter} left")
    }

    fn time_out(&mut self, waiter: &str) -> String {
        let ticket = waiter.strip_prefix('w').and_then(|number| number.parse().ok());
        let Some((id, ..)) = ticket.and_then(|ticket: u64| self.waiters.remove(&ticket)) else {
            return "it does not wait".to_owned();
        };
        self.engine.time_out(id, self.space.now());
        format!("{waiter} got nil")
    }

    fn set_log(&mut self, what: &str, number: u64) {
        match what {
            "log-wait" => self.log_settings.wait_ms = Some(number),
            "log-hold" => self.log_settings.hold_ms = Some(number),
            _ => self.log_settings.max_len = usize::try_from(number).expect("a length"),
        }
        self.engine.log.configure(self.log_settings);
    }

    fn log(&mut self) -> Vec<String> {
        let line = |entry: &LogEntry| {
            let bytes = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let words = [
                Some(format!("{}. {:?}", entry.id, entry.event)),
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
        let lines = self.engine.log.entries().map(line).collect();
        self.engine.log.reset();
        list("entries", lines)
    }

    fn gone(&mut self, client: ClientId) {
        self.engine.input(Input::ClientGone(client), self.space.now());
        let is_its = |(_, (_, _, of)): &(&u64, &(WaiterId, Owner, ClientId))| *of == client;
        let waiters: Vec<u64> = self.waiters.iter().filter(is_its).map(|(ticket, _)| *ticket).collect();
        waiters.into_iter().for_each(|ticket| drop(self.leave(&format!("w{ticket}"))));
    }

    fn set(&mut self, what: &str, word: &str) {
        let number = || word.parse::<u64>().unwrap_or_else(|_| panic!("{word}: not a number"));
        match (what, word) {
            ("permit", "full") => self.permit(Permission::Full),
            ("permit", "release-only") => self.permit(Permission::ReleaseOnly),
            ("permit", "elsewhere") => self.permit(Permission::Elsewhere),
            ("blind", "yes" | "no") => self.space.is_blind = word == "yes",
            ("grace", "none") => self.engine.settings.session_grace = None,
            ("grace", _) => self.engine.settings.session_grace = Lease::new(number()),
            ("max-waiters", _) => self.engine.settings.max_waiters = usize::try_from(number()).ok(),
            ("default-lease", _) => self.engine.settings.default_lease = Lease::new(number()).expect("a lease"),
            _ => panic!("{what} {word}: no such thing"),
        }
    }

    fn permit(&mut self, permission: Permission) {
        self.space.permissions.insert(self.key.clone(), permission);
    }

    fn counts(&self) -> String {
        let stats = &self.engine.stats;
        let gauges = self.engine.gauges();
        let counts = [
            ("grants", stats.grants),
            ("reentries", stats.reentries),
            ("refusals", stats.refusals),
            ("releases", stats.releases),
            ("renewals", stats.renewals),
            ("lapses", stats.lapses),
            ("waits", stats.waits),
            ("timeouts", stats.wait_timeouts),
            ("deadlocks", stats.deadlocks),
            ("replays", stats.replays),
            ("session-ends", stats.session_ends),
            ("waiters", gauges.waiters as u64),
            ("queues", gauges.queues as u64),
            ("sessions", gauges.sessions as u64),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(" ")
    }

    // Commands of the server.

    fn change_keys(&mut self, command: &str, words: &mut Words) -> String {
        self.replicate();
        let (now, key) = (self.space.ms(), self.key.clone());
        let was_there = u8::from(self.space.exists(&key));
        match command {
            "expire" => {
                let at = now + words.number();
                self.space.set_expiry(&key, Some(at));
                if at > now {
                    self.replica.set_expiry(&key, Some(at));
                }
                was_there.to_string()
            }
            "persist" => {
                self.space.set_expiry(&key, None);
                self.replica.set_expiry(&key, None);
                was_there.to_string()
            }
            "del" => {
                let lost = Lost::of(name(&key), self.space.lock(&key), self.space.now());
                self.engine.lose(&lost);
                self.space.delete(&key);
                was_there.to_string()
            }
            "set" => {
                self.space.set_other(&key);
                self.space.replicate_to(&mut self.replica, &mut self.memory);
                self.replica.set_other(&key);
                "OK".to_owned()
            }
            "rename" => {
                let to = key_name(words.word());
                if !self.space.rename(&key, &to) {
                    return "ERR no such key".to_owned();
                }
                self.space.replicate_to(&mut self.replica, &mut self.memory);
                self.replica.rename(&key, &to);
                "OK".to_owned()
            }
            "restore" => {
                let from = key_name(words.word());
                let expiry = words.next().map(|ms| now + ms.parse::<u64>().expect("a number of ms"));
                let bytes = self.space.dump(&from).expect("a lock to restore");
                let lock = self.space.restore(&key, &bytes, expiry);
                self.space.replicate_to(&mut self.replica, &mut self.memory);
                self.replica.restore(&key, &bytes, expiry);
                self.engine.memory.tokens.observe_all(lock.stored_holds());
                self.engine.input(Input::Restored(name(&key)), self.space.now());
                "OK".to_owned()
            }
            "flush" => {
                let db = words.next().map(|db| db.parse().expect("a database"));
                self.engine.log_flush(db, self.space.now());
                self.space.flush(db);
                self.replica.flush(db);
                self.engine.input(Input::Flushed(db), self.space.now());
                "OK".to_owned()
            }
            "swap" => {
                let dbs = [(); 2].map(|()| i32::try_from(words.number()).expect("a database"));
                self.space.swap(dbs[0], dbs[1]);
                self.replica.swap(dbs[0], dbs[1]);
                self.engine.input(Input::Swapped(dbs[0], dbs[1]), self.space.now());
                "OK".to_owned()
            }
            "evict" => {
                self.space.expire_actively();
                "OK".to_owned()
            }
            _ => self.happen(command),
        }
    }

    fn happen(&mut self, command: &str) -> String {
        let now = self.space.now();
        match command {
            "pause" => self.role = Role::HeldStill,
            "resume" => self.role = Role::Primary,
            "demote" => {
                self.role = Role::Replica;
                self.engine.input(Input::RoleChanged, now);
                let waiters: Vec<u64> = self.waiters.keys().copied().collect();
                waiters.into_iter().for_each(|ticket| drop(self.leave(&format!("w{ticket}"))));
            }
            "promote" => {
                self.role = Role::Primary;
                self.engine.input(Input::RoleChanged, now);
            }
            "reload" => {
                self.space.reload();
                self.engine.input(Input::Loaded, now);
            }
            "restart" => {
                self.space.reload();
                self.engine = Engine::new(8, self.engine.settings);
                for key in self.space.names() {
                    self.engine.memory.tokens.observe_all(self.space.lock(&key).stored_holds());
                }
                self.waiters.clear();
            }
            _ => panic!("{command}: no such command"),
        }
        "OK".to_owned()
    }

    // What is sent.

    /// A line for each waiter that gets an answer; events are kept for `events`.
    fn answers(&mut self) -> Vec<String> {
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
                        Answer::Granted(token, _) => self.names.name_or_give(token),
                        Answer::Nil => "nil".to_owned(),
                        Answer::Fault(fault) => error(&fault),
                    };
                    said.push(format!("w{ticket} {}: {answer}", text(&owner)));
                }
            }
        }
        said
    }

    /// The replica does what the primary did, and has the same locks then.
    fn replicate(&mut self) {
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
                format!("put {} until={} expiry={expiry}", self.describe(hold), story_time(hold.deadline))
            }
            Change::Remove { owner, mode } => format!("remove {} {}", text(owner), mode.map_or("both", name_of)),
            Change::Sweep => "sweep".to_owned(),
        };
        format!("{}: {what}", story_time(effect.clock))
    }

    fn stored(&self) -> Vec<String> {
        let lapsed = |hold: &Hold| if hold.is_live(self.space.now().ms()) { "" } else { " lapsed" };
        let line = |hold: &Hold| format!("{} until={}{}", self.describe(hold), story_time(hold.deadline), lapsed(hold));
        list("stored", self.space.lock(&self.key).stored_holds().map(line).collect())
    }

    fn describe(&self, hold: &Hold) -> String {
        let (owner, mode, token) = (text(&hold.owner), name_of(hold.mode), self.names.name(hold.token));
        let request = hold.request.as_ref().map_or(String::new(), |request| {
            format!(" request={:?}:{}", request.command(), request.id().escape_ascii()).to_lowercase()
        });
        format!("{owner} {mode} count={} lease={} token={token}{request}", hold.count, hold.lease.get())
    }

    fn ttl(&self) -> String {
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

/// `KEY`, or `DB/KEY`.
fn key_name(word: &str) -> KeyName {
    let (db, key) = word.split_once('/').unwrap_or(("0", word));
    (db.parse().expect("a database"), key.as_bytes().to_vec())
}

/// The time, in ms after a scenario began.
pub fn time(ms: u64) -> UnixMs {
    UnixMs::new(BEGIN_MS + ms)
}

fn story_time(time: UnixMs) -> u64 {
    time.get() - BEGIN_MS
}

fn owner(word: &str) -> Owner {
    Owner::new(word.as_bytes()).expect("an owner of 1 to 1024 bytes")
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

fn error(fault: &Fault) -> String {
    match fault {
        Fault::WrongType => "WRONGTYPE".to_owned(),
        Fault::Ambiguous => "AMBIGUOUS".to_owned(),
        Fault::Deadlock(how) => format!("DEADLOCK {how}"),
        Fault::TryAgain => "TRYAGAIN".to_owned(),
        Fault::TooManyEntries => "ERR too many entries".to_owned(),
        Fault::NoToken => "ERR no token".to_owned(),
        Fault::TooManyWaiters => "ERR too many waiters".to_owned(),
        Fault::SessionLease => "ERR too short for a session".to_owned(),
        Fault::SessionAbsolute => "ERR absolute in a session".to_owned(),
    }
}

fn list(what: &str, lines: Vec<String>) -> Vec<String> {
    with_list(format!("{what}: {}", lines.len()), lines)
}

/// One line, and the list that belongs to it.
fn with_list(line: String, list: Vec<String>) -> Vec<String> {
    std::iter::once(line).chain(list.iter().map(|item| format!("  {item}"))).collect()
}

const BEGIN_MS: u64 = 1_000_000;
const DEFAULT_LEASE: Lease = Lease::new(30_000).expect("in range");
