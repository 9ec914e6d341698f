//! A server for scenarios: the engine and the time are real, keys are in memory, and a replica follows.
//!
//! | command | prints |
//! |---|---|
//! | `at MS` | nothing: sets the time to MS ms after the scenario began. No timer runs |
//! | `on KEY`, `on DB/KEY` | nothing: the commands that follow are about this key |
//! | `tick` | the timer runs until it has nothing to do: a line for each waiter that gets an answer, or `nothing` |
//! | `wake` | when the timer wants to run: `now`, a time, or `never` |
//! | `acquire`, `racquire`, `rlock`, `wlock` `OWNER [option …]` | the token, nil or an error |
//! | `sacquire OWNER LIMIT [option …]`, `macquire KEY,KEY OWNER [option …]` | the token, nil or an error |
//! | these commands with `BLOCK` | as without; if the request waits, its name: `w1`, `w2`, … |
//! | `release OWNER [READ\|WRITE] [ALL\|PERMITS k] [TOKEN t] [REQUEST id]` | as `DLOCK.RELEASE` |
//! | `renew OWNER [lease] [READ\|WRITE] [SESSION] [TOKEN t\|MINTOKEN t]` | as `DLOCK.RENEW` |
//! | `check t`, `info [OWNER owner\|FULL]` | as `DLOCK.CHECK` and `DLOCK.INFO`, a line for each hold |
//! | `queue` | a line for each waiter, the head first |
//! | `stored` | a line for each hold, lapsed ones too |
//! | `expire MS`, `persist`, `ttl`, `del`, `rename KEY`, `set`, `flush [DB]`, `swap A B` | as Redis |
//! | `restore KEY [MS]` | `OK`: the key gets the value that `DUMP` returns for KEY, with this TTL |
//! | `evict` | `OK`: the server removes the expired keys |
//! | `leave w`, `time-out w`, `gone c` | a waiter leaves; its time is over; the connection of a client ends |
//! | `pause`, `resume`, `demote`, `promote`, `reload`, `restart` | what happens to the server |
//! | `permit full\|release-only\|elsewhere` | nothing: what the server lets timers do to the key |
//! | `blind yes\|no` | nothing: whether clients may read only the keys that they name |
//! | `max-waiters N`, `session-grace MS`, … | nothing: the operator sets `dlock.max-waiters`, `dlock.session-grace`, … |
//! | `log` | a line for each entry, the newest first; then the log is empty |
//! | `replicated`, `events`, `counts` | the effects and the events since the last such command; counters above 0 |
//!
//! A command that grants waiting requests prints a line for each of them after its own. `BY c2` names the client; the
//! default is `c1`. `lease` is `EX s`, `PX ms`, `EXAT s` or `PXAT ms`; the default is 30 s.

mod keys;
mod shown;

use std::collections::BTreeMap;

use dlock_core::engine::{Call, Entered, Input, Left, LogSettings, Peer, Permission, Role, Settings, WaiterId};
use dlock_core::settings::Setting;
use dlock_core::{
    BindTo, ClientId, Command, Engine, Entries, Keyspace, Memory, Name, Owner, Reach, Renew, RenewToken, UnixMs, Want,
};
use dlock_testkit::histories::How;
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, RunningRelease, name};

use crate::options::{Options, Words};
use crate::tokens::TokenNames;
use shown::list;

pub struct Interpreter {
    key: KeyName,
    space: MemoryKeyspace,
    engine: Engine<u64>,
    /// The settings that a scenario has changed.
    configured: BTreeMap<Setting, i64>,
    role: Role,
    replica: MemoryKeyspace,
    memory: Memory,
    waiters: BTreeMap<u64, (WaiterId, Owner, ClientId)>,
    tickets: u64,
    names: TokenNames,
    replicated: Vec<String>,
    events: Vec<String>,
    /// The answers to waiters that came before the running command's own answer.
    answered: Vec<String>,
}

/// Returns an engine of a server that has just started, with the settings that a scenario has changed.
fn new_engine(seed: u64, configured: &BTreeMap<Setting, i64>) -> Engine<u64> {
    let value = |setting: Setting| configured.get(&setting).copied().unwrap_or(setting.range().default);
    let mut engine = Engine::new(seed, Settings::of(value));
    engine.log_mut().identify_by(|_, _| Some(Peer { addr: [].into(), name: None }));
    engine.log_mut().configure(LogSettings::of(value));
    engine
}

impl Default for Interpreter {
    fn default() -> Interpreter {
        Interpreter {
            key: (0, b"lock".to_vec()),
            space: MemoryKeyspace::at(BEGIN_MS),
            engine: new_engine(7, &BTreeMap::new()),
            configured: BTreeMap::new(),
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

impl Interpreter {
    /// Runs a line of a scenario, and returns the lines that it prints.
    pub fn run(&mut self, line: &str) -> Vec<String> {
        let mut words = Words(line.split_whitespace());
        let command = words.word();
        let mut said = self.dispatch(command, &mut words);
        assert_eq!(words.next(), None, "left over in {line}");
        for key in self.space.take_unlinked() {
            // The module, too, tells the engine only of locks that have a record.
            if self.engine.remembers(name(&key)) {
                self.engine.input(Input::Removed(name(&key)), self.space.now());
            }
        }
        said.append(&mut self.answered);
        said.extend(self.answers());
        self.replicate();
        if said.is_empty() && command == "tick" { vec!["nothing".to_owned()] } else { said }
    }

    fn dispatch(&mut self, command: &str, words: &mut Words) -> Vec<String> {
        if let Some(setting) = Setting::ALL.into_iter().find(|setting| setting.range().name == command) {
            return self.nothing(|this| this.set(setting, words.word()));
        }
        let line = match command {
            "at" => return self.nothing(|this| this.space.set_now_us((BEGIN_MS + words.number()) * 1000)),
            "on" => return self.nothing(|this| this.key = key_name(words.word())),
            "tick" => return self.tick(),
            "wake" => self.wake(),
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
            "gone" => return self.nothing(|this| this.gone(words.client())),
            "replicated" => return list("effects", std::mem::take(&mut self.replicated)),
            "events" => return list("events", std::mem::take(&mut self.events)),
            "counts" => self.counts(),
            "permit" => return self.nothing(|this| this.permit(words.word())),
            "blind" => return self.nothing(|this| this.space.is_blind = words.word() == "yes"),
            _ => match Command::acquiring(&command.to_ascii_uppercase()) {
                Some(command) => self.acquire(command, words),
                None => self.change_keys(command, words),
            },
        };
        vec![line]
    }

    fn nothing(&mut self, act: impl FnOnce(&mut Interpreter)) -> Vec<String> {
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
            (_, Some(limit)) if options.slot => Want::Slot { limit },
            (_, Some(limit)) => Want::Permits { permits: options.permits, limit },
            (command, None) => How::new(command).want,
        };
        let (client, blocks) = (options.client, options.blocks);
        let ask = options.request(owner.clone(), want);
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
            Ok(Entered::Granted(grant)) => self.granted(grant),
            Ok(Entered::Replayed(grant)) => format!("{} (replayed)", self.granted(grant)),
            Ok(Entered::Refused) => "nil".to_owned(),
            Ok(Entered::Waiting(id)) => {
                self.tickets = ticket;
                self.waiters.insert(ticket, (id, owner, client));
                first.map_or(format!("w{ticket} waits"), |first| format!("w{ticket} waits in place of w{first}"))
            }
            Err(fault) => fault.to_string(),
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
        let replays = self.engine.stats().replays;
        let left = self.engine.release(&mut self.space, call, &running.request());
        self.space.running = None;
        match left {
            Ok(Left::NotHeld) => "nil".to_owned(),
            Ok(Left::Partly) if self.engine.stats().replays > replays => "0 (replayed)".to_owned(),
            Ok(Left::Partly) => "0".to_owned(),
            Ok(Left::Fully) => "1".to_owned(),
            Err(fault) => fault.to_string(),
        }
    }

    fn renew(&mut self, words: &mut Words) -> String {
        let owner = owner(words.word());
        // The command of the options counts only for `REQUEST`, which a renewal does not have.
        let Options { lease, mode, token, min_token, binds, client, .. } =
            Options::parse(Command::Release, words, &mut self.names);
        let token = match (token, min_token) {
            (Some(token), _) => RenewToken::Is(token),
            (None, Some(floor)) if floor.get() > self.highest_min_token() => {
                return "ERR too far ahead".to_owned();
            }
            (None, Some(floor)) => RenewToken::AtLeast(floor),
            (None, None) => RenewToken::Any,
        };
        let call = Call { name: name(&self.key), now: self.space.now(), client };
        let request = Renew { owner: &owner, mode, lease, token };
        let session = if binds { BindTo::Connection } else { BindTo::Nothing };
        match self.engine.renew(&mut self.space, call, &request, session) {
            Ok(Some(reach)) => {
                min_token.into_iter().for_each(|floor| self.names.raise(floor));
                if reach == Reach::Asked { "1" } else { "0" }.to_owned()
            }
            Ok(None) => "nil".to_owned(),
            Err(fault) => fault.to_string(),
        }
    }

    // The timer, waiters, clients and settings.

    fn tick(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for _ in 0..100 {
            if self.engine.wake_at().is_none_or(|at| at > self.space.now().ms()) {
                return said;
            }
            self.engine.tick(&mut self.space, self.role);
            said.extend(self.answers());
        }
        panic!("the timer never becomes idle");
    }

    fn leave(&mut self, waiter: &str) -> String {
        let Some((ticket, id)) = self.take_waiter(waiter) else { return "it does not wait".to_owned() };
        assert_eq!(self.engine.abandon(id), Some(ticket));
        format!("{waiter} left")
    }

    fn time_out(&mut self, waiter: &str) -> String {
        let Some((_, id)) = self.take_waiter(waiter) else { return "it does not wait".to_owned() };
        self.engine.time_out(id, self.space.now());
        format!("{waiter} got nil")
    }

    fn take_waiter(&mut self, waiter: &str) -> Option<(u64, WaiterId)> {
        let ticket = waiter.strip_prefix('w').and_then(|number| number.parse().ok());
        let ticket = ticket.unwrap_or_else(|| panic!("{waiter}: waiters are called w1, w2, …"));
        self.waiters.remove(&ticket).map(|(id, ..)| (ticket, id))
    }

    fn gone(&mut self, client: ClientId) {
        self.engine.input(Input::ClientGone(client), self.space.now());
        let is_its = |(_, (_, _, of)): &(&u64, &(WaiterId, Owner, ClientId))| *of == client;
        let waiters: Vec<u64> = self.waiters.iter().filter(is_its).map(|(ticket, _)| *ticket).collect();
        waiters.into_iter().for_each(|ticket| drop(self.leave(&format!("w{ticket}"))));
    }

    fn highest_min_token(&self) -> u64 {
        let default = Setting::MaxTokenLead.range().default;
        let lead = self.configured.get(&Setting::MaxTokenLead).copied().unwrap_or(default);
        self.space.now().us() + lead.cast_unsigned() * 1000
    }

    fn set(&mut self, setting: Setting, word: &str) {
        let value = word.parse().unwrap_or_else(|_| panic!("{word}: not a number"));
        self.configured.insert(setting, value);
        let value = |setting: Setting| self.configured.get(&setting).copied().unwrap_or(setting.range().default);
        *self.engine.settings_mut() = Settings::of(value);
        self.engine.log_mut().configure(LogSettings::of(value));
    }

    fn permit(&mut self, word: &str) {
        let permission = match word {
            "full" => Permission::Full,
            "release-only" => Permission::ReleaseOnly,
            "elsewhere" => Permission::Elsewhere,
            _ => panic!("{word}: no such permission"),
        };
        self.space.permissions.insert(self.key.clone(), permission);
    }
}

/// Returns the key that a word (`KEY`, or `DB/KEY`) names.
fn key_name(word: &str) -> KeyName {
    let (db, key) = word.split_once('/').unwrap_or(("0", word));
    (db.parse().expect("a database"), key.as_bytes().to_vec())
}

/// Returns the time `ms` milliseconds after the scenario began.
pub fn time(ms: u64) -> UnixMs {
    UnixMs::new(BEGIN_MS + ms)
}

fn owner(word: &str) -> Owner {
    Owner::new(word.as_bytes()).expect("an owner of 1 to 1024 bytes")
}

const BEGIN_MS: u64 = 1_000_000;
