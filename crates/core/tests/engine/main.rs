//! The engine with many locks, many holds and long names, which are too large for a scenario.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod agenda;
mod deadlock;
mod ended;
mod expired;
mod graces;
mod load;
mod log;
mod named;
mod pieces;
mod refused;
mod replaced;
mod rights;
mod waits;
mod watched;

use dlock_core::engine::{
    Call, Entered, Fault, Heartbeat, Input, Left, OpenIf, Output, Peer, Role, Settings, UserState,
};
use dlock_core::{
    BindTo, ClientId, Engine, Entries, Keyspace, Lease, LeaseChoice, Name, Owner, Release, Request, SessionId, Want,
};
use dlock_testkit::keyspace::MemoryKeyspace;

/// An engine with keys in memory. Each request comes 1 ms after the previous one.
struct Server {
    engine: Engine<()>,
    space: MemoryKeyspace,
    now_us: u64,
}

impl Server {
    fn new() -> Server {
        let settings = Settings::new(Lease::new(60_000).unwrap());
        let mut engine = Engine::new(7, settings);
        engine.log_mut().identify_by(|_, _| Some(Peer { addr: [].into(), name: Some([b'n'; 200].into()) }));
        Server { engine, space: MemoryKeyspace::default(), now_us: 1_000_000_000 }
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now_us += ms * 1000;
        self.space.set_now_us(self.now_us);
    }

    /// Asks for a lock by an owner whose name is this number with `owner_len` digits, and whose client has the same
    /// number.
    fn acquire(&mut self, key: &str, owner: usize, owner_len: usize, want: Want) -> Result<Entered, Fault> {
        let client = ClientId(owner as u64);
        let owner = Owner::new(format!("{owner:0owner_len$}").as_bytes()).unwrap();
        self.ask(key, client, &Request::new(owner, want, LeaseChoice::Own))
    }

    /// Asks for a lock with `SESSION`, as this client.
    fn acquire_bound(&mut self, key: &str, owner: usize, want: Want, client: u64) -> Result<Entered, Fault> {
        let owner = Owner::new(owner.to_string().as_bytes()).unwrap();
        self.ask(
            key,
            ClientId(client),
            &Request { session: BindTo::Connection, ..Request::new(owner, want, LeaseChoice::Own) },
        )
    }

    fn ask(&mut self, key: &str, client: ClientId, ask: &Request) -> Result<Entered, Fault> {
        self.pass_ms(1);
        let call = self.call(key, client.0);
        self.engine.acquire(&mut self.space, call, ask, Some(|_| ()))
    }

    /// Asks for several locks.
    fn ask_all(&mut self, keys: &[&str], client: u64, ask: &Request, may_wait: bool) -> Result<Entered, Fault> {
        let names: Vec<Name<'_>> = keys.iter().map(|key| name(key)).collect();
        let call = self.call(keys[0], client);
        self.engine.acquire_all(&mut self.space, call, &names, ask, may_wait.then_some(|_| ()))
    }

    fn release(&mut self, key: &str, client: u64, owner: &Owner) -> Result<Left, Fault> {
        let release = Release { owner, mode: None, entries: Entries::ONE, token: None, request: None };
        let call = self.call(key, client);
        self.engine.release(&mut self.space, call, &release)
    }

    fn call<'k>(&self, key: &'k str, client: u64) -> Call<'k> {
        Call { name: name(key), now: self.space.now(), client: ClientId(client) }
    }

    /// Runs the timer once.
    fn tick(&mut self) {
        self.engine.tick(&mut self.space, Role::Primary);
    }

    /// Asks for a lock, and checks that the request waits.
    fn wait(&mut self, key: &str, owner: usize, owner_len: usize, want: Want) {
        assert!(matches!(self.acquire(key, owner, owner_len, want), Ok(Entered::Waiting(_))));
    }

    /// Ends the connection of a client. No timer runs.
    fn disconnect(&mut self, client: u64) {
        let now = self.space.now();
        self.engine.input(Input::ClientGone(ClientId(client)), now);
    }

    /// Opens a named session.
    fn open_named(&mut self) -> dlock_core::Binding {
        let (id, times) = (SessionId::new(b"named").unwrap(), (self.space.uptime(), self.space.now()));
        let beat = Heartbeat { id: &id, user: b"user", timeout: Lease::new(60_000).unwrap(), only: OpenIf::Any };
        self.engine.keep_session(beat, times, || UserState::Enabled).unwrap();
        BindTo::Named(self.engine.look_up_session(&id, Some(b"user")))
    }

    /// Closes the named session.
    fn close_named(&mut self) {
        let (id, now) = (SessionId::new(b"named").unwrap(), self.space.now());
        assert!(self.engine.close_session(&id, b"user", now).is_some());
    }

    /// Takes all outputs. Returns how many are answers to waiting requests.
    fn answers(&mut self) -> usize {
        let outputs = self.engine.take_outputs();
        outputs.iter().filter(|output| matches!(output, Output::Answer(..))).count()
    }

    /// Takes all outputs. Returns how many are keyspace events, without those of the command's own keys.
    fn events(&mut self) -> usize {
        let outputs = self.engine.take_outputs();
        outputs.iter().filter(|output| matches!(output, Output::Event(..))).count()
    }
}

fn name(key: &str) -> Name<'_> {
    Name { db: 0, key: key.as_bytes() }
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}

fn is_granted(entered: &Result<Entered, Fault>) -> bool {
    matches!(entered, Ok(Entered::Granted(_)))
}
