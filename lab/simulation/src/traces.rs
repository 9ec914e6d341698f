//! Histories of the engine in the words of `lab/spec/Lock.tla`, for TLC to check: one lock, a few owners, whole units of
//! time. Each step has what the server then has, read from the engine alone: nothing here knows the specification.

use std::collections::BTreeMap;
use std::fmt::Write;

use dlock_core::engine::{Answer, Detail, Fault, Input, Left, Output, Settings};
use dlock_core::{
    BindTo, ClientId, Entries, Keyspace, Lease, LeaseChoice, Mode, Owner, Renew, RenewToken, Request, Token, UnixMs,
    Want,
};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, RunningRelease, name};
use dlock_testkit::memory_server::{Entry, MemoryServer};
use dlock_testkit::random::Random;

/// A unit of the specification's time, and its constant `Lease`. Holds of sessions have leases of 300 ms at least.
const UNIT_MS: u64 = 100;
const LEASE: u64 = 3;
const BEGIN_MS: u64 = 1_000_000;
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// The knowledge of an owner's program: the names are those of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Idle,
    Sent { mode: Mode, waits: bool, session: bool },
    Waits(Mode),
    Answered(Mode, Token),
    Holds(Mode, Token),
}

/// A lock, and the programs of its owners.
struct World {
    server: MemoryServer,
    key: KeyName,
    units: u64,
    programs: Vec<Program>,
    /// The connection of each owner.
    connections: Vec<u64>,
    steps: Vec<Step>,
}

/// A step, and what the server then has. Tokens are those of the engine.
struct Step {
    what: String,
    units: u64,
    holds: Vec<[Option<Held>; 2]>,
    queue: Vec<(usize, Mode)>,
    last: u64,
    programs: Vec<Program>,
}

/// A live hold: in which unit it ends, its token, and whether it is bound to a session.
#[derive(Clone, Copy)]
struct Held {
    until: u64,
    token: u64,
    session: bool,
}

/// Returns the history of a seed, as a line of JSON.
pub fn trace(seed: u64, owners: usize, steps: usize) -> String {
    let mut random = Random::of(seed, "trace");
    let mut world = World::new(owners);
    while world.steps.len() < steps {
        if random.one_in(4) {
            world.tick();
        } else {
            let owner = random.below(owners as u64) as usize;
            world.play(owner, &mut random);
        }
    }
    world.text()
}

impl World {
    fn new(owners: usize) -> World {
        let settings = Settings::new(lease());
        World {
            server: MemoryServer::new(settings, MemoryKeyspace::at(BEGIN_MS)),
            key: (0, b"lock".to_vec()),
            units: 1,
            programs: vec![Program::Idle; owners],
            connections: (1..=owners as u64).collect(),
            steps: Vec::new(),
        }
    }

    /// Has an owner do one of the things that it may do now.
    fn play(&mut self, owner: usize, random: &mut Random) {
        let program = self.programs[owner];
        if program != Program::Idle && random.one_in(12) {
            return self.die(owner);
        }
        match program {
            Program::Idle => {
                let mode = random.pick(&MODES);
                // The owner of a hold in that mode would enter again.
                if self.holds()[owner][mode_at(mode)].is_none() {
                    self.send(owner, mode, !random.one_in(4), random.one_in(2));
                }
            }
            Program::Sent { mode, waits, session } => self.execute(owner, mode, waits, session),
            Program::Waits(_) => {}
            Program::Answered(mode, token) => {
                self.programs[owner] = Program::Holds(mode, token);
                self.note("read", owner, "");
            }
            Program::Holds(mode, token) if random.one_in(2) => self.renew(owner, mode, token),
            Program::Holds(_, token) => self.release(owner, token),
        }
    }

    // Steps. Each ends with a note.

    fn tick(&mut self) {
        self.units += 1;
        self.server.space.set_now_us((BEGIN_MS + (self.units - 1) * UNIT_MS) * 1000);
        self.server.hear_of_removals();
        self.note("tick", 0, "");
    }

    fn send(&mut self, owner: usize, mode: Mode, waits: bool, session: bool) {
        self.programs[owner] = Program::Sent { mode, waits, session };
        let more = format!(r#","mode":"{}","waits":{waits},"session":{session}"#, mode_name(mode));
        self.note("send", owner, &more);
    }

    fn execute(&mut self, owner: usize, mode: Mode, waits: bool, session: bool) {
        let want = if mode == Mode::Shared { Want::Shared } else { Want::Exclusive };
        let session = if session { BindTo::Connection } else { BindTo::Nothing };
        let request = Request { session, ..Request::new(owner_name(owner), want, LeaseChoice::For(lease())) };
        let key = std::slice::from_ref(&self.key);
        let entered = self.server.enter(self.connections[owner], key, false, &request, waits.then_some(owner as u64));
        self.programs[owner] = match entered {
            Ok(Entry::Granted(grant)) => Program::Answered(mode, grant.token),
            Ok(Entry::Waits) => Program::Waits(mode),
            Ok(Entry::Refused) | Err(Fault::Deadlock(_)) => Program::Idle,
            other => panic!("a request is answered {other:?}"),
        };
        self.note("execute", owner, "");
    }

    fn renew(&mut self, owner: usize, mode: Mode, token: Token) {
        let name = owner_name(owner);
        let lease = LeaseChoice::For(lease());
        let renew = Renew { owner: &name, mode: Some(mode), lease, token: RenewToken::Is(token) };
        let reach = self.server.renew(self.connections[owner], &self.key, &renew, BindTo::Nothing);
        if reach.expect("RENEW is no error").is_none() {
            self.programs[owner] = Program::Idle;
        }
        self.note("renew", owner, "");
    }

    fn release(&mut self, owner: usize, token: Token) {
        let owner_of = owner_name(owner);
        let release =
            RunningRelease { owner: owner_of, mode: None, entries: Entries::ONE, token: Some(token), request: None };
        let left = self.server.release(self.connections[owner], &self.key, release);
        let released = left.expect("RELEASE is no error") == Left::Fully;
        self.programs[owner] = Program::Idle;
        self.note("release", owner, &format!(r#","released":{released}"#));
    }

    fn die(&mut self, owner: usize) {
        let connection = self.connections[owner];
        self.server.input(Input::ClientGone(ClientId(connection)));
        if matches!(self.programs[owner], Program::Waits(_)) {
            assert!(self.server.abandon(owner as u64), "it waits");
        }
        self.programs[owner] = Program::Idle;
        self.connections[owner] = connection + self.connections.len() as u64;
        self.note("die", owner, "");
    }

    // The words of the engine.

    /// Ends the turn: the timer runs, and requests that waited are answered. Then writes down what there is.
    fn note(&mut self, what: &str, owner: usize, more: &str) {
        let mut ticks = 0;
        loop {
            self.hear();
            if !self.server.is_due() {
                break;
            }
            self.server.tick();
            ticks += 1;
            assert!(ticks < 50, "the timer has always something to do");
        }
        let what = format!(r#""do":"{what}","owner":"{}"{more}"#, letter(owner));
        let (holds, queue, programs) = (self.holds(), self.queue(), self.programs.clone());
        let last = self.server.engine.gauges().last_token;
        self.steps.push(Step { what, units: self.units, holds, queue, last, programs });
    }

    fn hear(&mut self) {
        for output in self.server.take_outputs() {
            let Output::Answer(ticket, answer) = output else { continue };
            let program = &mut self.programs[ticket as usize];
            let (Program::Waits(mode), Answer::Granted(grant, _)) = (*program, &answer) else {
                panic!("{program:?} is answered {answer:?}");
            };
            *program = Program::Answered(mode, grant.token);
        }
    }

    fn shown(&mut self) -> Option<dlock_core::engine::Inspection> {
        let now = self.server.space.now();
        let lock = self.server.space.lock(&self.key).clone();
        let end = self.server.space.expiry(&self.key).flatten().map(UnixMs::new);
        self.server.engine.inspect(name(&self.key), &lock, end, now, &Detail::Full(usize::MAX))
    }

    fn holds(&mut self) -> Vec<[Option<Held>; 2]> {
        let mut holds = vec![[None; 2]; self.programs.len()];
        for shown in self.shown().and_then(|shown| shown.holds).unwrap_or_default() {
            // A hold that ends within a unit would have no place in the specification.
            assert_eq!(shown.ttl % UNIT_MS, 0, "{shown:?}");
            let until = self.units + shown.ttl / UNIT_MS;
            let held = Held { until, token: shown.hold.token.get(), session: shown.session.is_some() };
            holds[number(&shown.hold.owner)][mode_at(shown.hold.mode)] = Some(held);
        }
        holds
    }

    fn queue(&mut self) -> Vec<(usize, Mode)> {
        let queue = self.shown().and_then(|shown| shown.queue).unwrap_or_default();
        queue.iter().map(|waiter| (number(&waiter.owner), waiter.mode)).collect()
    }

    // Text.

    /// Writes the history. Tokens become the numbers of their order: the specification counts them.
    fn text(&self) -> String {
        let mut ranks: BTreeMap<u64, usize> = self.steps.iter().map(|step| (step.last, 0)).collect();
        ranks.extend(
            self.steps.iter().flat_map(|step| step.holds.iter().flatten().flatten()).map(|held| (held.token, 0)),
        );
        ranks.insert(0, 0);
        ranks.values_mut().enumerate().for_each(|(at, rank)| *rank = at);
        let steps: Vec<String> = self.steps.iter().map(|step| step.text(&ranks)).collect();
        format!("[{}]", steps.join(","))
    }
}

impl Step {
    fn text(&self, ranks: &BTreeMap<u64, usize>) -> String {
        let mut text = format!(r#"{{{},"now":{},"last":{},"holds":{{"#, self.what, self.units, ranks[&self.last]);
        for (owner, holds) in self.holds.iter().enumerate() {
            let told = |held: Option<Held>| match held {
                Some(Held { until, token, session }) => {
                    format!(r#"{{"until":{until},"token":{},"session":{session}}}"#, ranks[&token])
                }
                None => r#"{"until":0,"token":0,"session":false}"#.to_owned(),
            };
            let [exclusive, shared] = holds.map(told);
            let comma = if owner == 0 { "" } else { "," };
            let letter = letter(owner);
            write!(text, r#"{comma}"{letter}":{{"exclusive":{exclusive},"shared":{shared}}}"#).expect("a string grows");
        }
        let queue: Vec<String> = self
            .queue
            .iter()
            .map(|(owner, mode)| format!(r#"["{}","{}"]"#, letter(*owner), mode_name(*mode)))
            .collect();
        let programs: Vec<String> = self
            .programs
            .iter()
            .enumerate()
            .map(|(owner, program)| {
                let (state, token) = match program {
                    Program::Idle => ("idle", 0),
                    Program::Sent { .. } => ("sent", 0),
                    Program::Waits(_) => ("waits", 0),
                    Program::Answered(_, token) => ("answered", ranks[&token.get()]),
                    Program::Holds(_, token) => ("holds", ranks[&token.get()]),
                };
                format!(r#""{}":{{"state":"{state}","token":{token}}}"#, letter(owner))
            })
            .collect();
        write!(text, r#"}},"queue":[{}],"programs":{{{}}}}}"#, queue.join(","), programs.join(","))
            .expect("a string grows");
        text
    }
}

fn lease() -> Lease {
    Lease::new(LEASE * UNIT_MS).expect("a lease in its range")
}

fn mode_at(mode: Mode) -> usize {
    usize::from(mode == Mode::Shared)
}

fn mode_name(mode: Mode) -> &'static str {
    if mode == Mode::Shared { "shared" } else { "exclusive" }
}

fn letter(owner: usize) -> char {
    char::from(b'a' + owner as u8)
}

fn owner_name(owner: usize) -> Owner {
    Owner::new(letter(owner).to_string().as_bytes()).expect("a good owner")
}

fn number(owner: &Owner) -> usize {
    usize::from(owner.text()[0] - b'a')
}
