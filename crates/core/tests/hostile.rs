//! Findings of a hostile review: each test failed before its fix.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use dlock_core::engine::{
    Answer, Call, Engine, Entered, Input, KeyEnd, Keyspace, OpenKey, Output, Permission, Role, Settings, Signal,
    WaiterId, WrongType,
};
use dlock_core::{
    BindTo, ClientId, Effect, Lease, LeaseChoice, Lock, Memory, Mode, Name, Now, Owner, Request, UnixMs, Uptime, Want,
    decode_effect, encode_effect,
};

/// The keys of a server that removes an expired key whenever it is opened.
#[derive(Default)]
struct Keys {
    ms: u64,
    keys: BTreeMap<Vec<u8>, (Lock, Option<UnixMs>)>,
    has_removed: bool,
    stream: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Keys {
    fn expire(&mut self, name: Name<'_>) -> bool {
        let has_expired = self.keys.get(name.key).is_some_and(|(_, end)| end.is_some_and(|end| self.ms > end.get()));
        if has_expired {
            self.keys.remove(name.key);
            self.stream.push((name.key.to_vec(), None));
        }
        has_expired
    }

    fn set_expiry(&mut self, key: &str, at: u64) {
        self.keys.get_mut(key.as_bytes()).unwrap().1 = Some(UnixMs::new(at));
    }

    fn expiry(&self, key: &str) -> Option<u64> {
        self.keys.get(key.as_bytes())?.1.map(UnixMs::get)
    }

    /// Has a replica do what was replicated so far.
    fn replicate_to(&mut self, replica: &mut Keys) {
        for (key, what) in std::mem::take(&mut self.stream) {
            let name = Name { db: 0, key: &key };
            match what {
                Some(bytes) => {
                    let effect = decode_effect(&bytes).unwrap();
                    dlock_core::engine::replay(replica, name, effect, &mut Memory::new()).unwrap();
                }
                None => drop(replica.keys.remove(&key)),
            }
        }
    }
}

struct Open<'k> {
    space: &'k mut Keys,
    name: Vec<u8>,
    was_removed: bool,
}

impl Keyspace for Keys {
    type Key<'k> = Open<'k>;

    fn open(&mut self, name: Name<'_>) -> Result<Open<'_>, WrongType> {
        let was_removed = self.expire(name);
        Ok(Open { space: self, name: name.key.to_vec(), was_removed })
    }

    fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType> {
        self.has_removed = self.expire(name);
        Ok(look(self.keys.get(name.key).map_or(&Lock::EMPTY, |(lock, _)| lock)))
    }

    fn permission(&mut self, name: Name<'_>) -> Permission {
        self.has_removed = self.expire(name);
        Permission::Full
    }

    fn has_removed(&self) -> bool {
        self.has_removed
    }

    fn may_read(&mut self, _name: Name<'_>) -> (bool, u64) {
        (true, 0)
    }

    fn now(&self) -> Now {
        Now::from_us(self.ms * 1000)
    }

    fn uptime(&self) -> Uptime {
        Uptime::from_us(self.ms * 1000)
    }
}

impl OpenKey for Open<'_> {
    fn name(&self) -> Name<'_> {
        Name { db: 0, key: &self.name }
    }

    fn lock(&self) -> Option<&Lock> {
        self.space.keys.get(&self.name).map(|(lock, _)| lock)
    }

    fn lock_mut(&mut self) -> Option<&mut Lock> {
        self.space.keys.get_mut(&self.name).map(|(lock, _)| lock)
    }

    fn expiry(&self) -> Option<UnixMs> {
        self.space.keys.get(&self.name)?.1
    }

    fn was_removed(&self) -> bool {
        self.was_removed
    }

    fn replicate(&mut self, effect: &Effect) {
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        self.space.stream.push((self.name.clone(), Some(bytes)));
    }

    fn replicate_verbatim(&mut self) {}

    fn close(&mut self, end: KeyEnd, _signal: Signal) {
        match end {
            KeyEnd::Untouched => {}
            KeyEnd::Deleted => drop(self.space.keys.remove(&self.name)),
            KeyEnd::At(at) => {
                if let Some(key) = self.space.keys.get_mut(&self.name) {
                    key.1 = Some(at);
                }
            }
            KeyEnd::Created(lock, at) => drop(self.space.keys.insert(self.name.clone(), (*lock, at))),
        }
    }
}

/// A server: its engine and its keys.
struct Server {
    engine: Engine<u64>,
    keys: Keys,
}

const START: u64 = 1_700_000_000_000;

impl Server {
    fn new() -> Server {
        let settings = Settings::new(Lease::new(30_000).unwrap());
        Server { engine: Engine::new(7, settings), keys: Keys { ms: START, ..Keys::default() } }
    }

    fn acquire(&mut self, key: &str, owner: &str, want: Want, lease: u64, client: u64, binds: bool) -> Entered {
        self.acquire_all(&[key], owner, want, lease, client, binds)
    }

    fn acquire_all(&mut self, keys: &[&str], owner: &str, want: Want, lease: u64, client: u64, binds: bool) -> Entered {
        let names: Vec<Name<'_>> = keys.iter().map(|key| Name { db: 0, key: key.as_bytes() }).collect();
        let lease = LeaseChoice::For(Lease::new(lease).unwrap());
        let session = if binds { BindTo::Connection } else { BindTo::Nothing };
        let ask = Request { session, ..Request::new(self::owner(owner), want, lease) };
        let call = Call { name: names[0], now: self.keys.now(), client: ClientId(client) };
        let wait = Some(|_: WaiterId| client);
        match names.len() {
            1 => self.engine.acquire(&mut self.keys, call, &ask, wait).unwrap(),
            _ => self.engine.acquire_all(&mut self.keys, call, &names, &ask, wait).unwrap(),
        }
    }

    fn at(&mut self, ms: u64) {
        self.keys.ms = START + ms;
    }

    fn gone(&mut self, client: u64) {
        let now = self.keys.now();
        self.engine.input(Input::ClientGone(ClientId(client)), now);
    }

    /// Has the timer run for what is due now: who got which token meanwhile.
    fn tick(&mut self) -> Vec<u64> {
        while self.engine.wake_at().is_some_and(|at| at <= self.keys.now().ms()) {
            self.engine.tick(&mut self.keys, Role::Primary);
        }
        self.engine.take_outputs().into_iter().filter_map(granted).collect()
    }

    /// Has the timer run once: who got in.
    fn turn(&mut self) -> Vec<u64> {
        self.keys.ms += 1;
        self.engine.tick(&mut self.keys, Role::Primary);
        self.engine.take_outputs().into_iter().filter_map(granted).collect()
    }

    /// The owners of live holds.
    fn holds(&self, key: &str) -> Vec<(String, Mode)> {
        let lock = self.keys.keys.get(key.as_bytes()).map_or(&Lock::EMPTY, |(lock, _)| lock);
        let show = |hold: &dlock_core::Hold| (String::from_utf8_lossy(&hold.owner.text()).into_owned(), hold.mode);
        lock.live_holds(self.keys.now().ms()).map(show).collect()
    }
}

fn granted(output: Output<u64>) -> Option<u64> {
    match output {
        Output::Answer(client, Answer::Granted(..)) => Some(client),
        _ => None,
    }
}

fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}

/// A key that expires under a look (the probe of a timer, a look without opening it) takes the bindings of its lock along.
#[test]
fn bindings_of_a_key_that_expired_under_a_look_do_not_count_against_new_holders() {
    let mut server = Server::new();
    for number in 0..100 {
        server.acquire("k", &format!("x{number}"), Want::Shared, 60_000, 1, true);
    }
    let Entered::Waiting(first) = server.acquire("k", "w", Want::ExclusiveOnce, 60_000, 2, false) else { panic!() };
    for number in 0..36 {
        server.acquire("k", &format!("r{number}"), Want::Shared, 60_000, 100 + number, false);
    }
    server.acquire("k", "z", Want::ExclusiveOnce, 60_000, 3, false);
    server.keys.set_expiry("k", START + 50);
    server.at(51);
    server.gone(1);
    server.engine.abandon(first);
    assert_eq!(server.tick(), (100..136).collect::<Vec<u64>>());
    assert_eq!(server.holds("k").len(), 36);
    assert_eq!(server.engine.gauges().sessions, 0);
}

/// The deadlock search looks at another key, and the server removes it: those that wait for it get in at once.
#[test]
fn a_queue_moves_when_the_search_of_another_request_has_its_key_expire() {
    let mut server = Server::new();
    server.acquire("far", "a", Want::ExclusiveOnce, 60_000, 1, false);
    server.acquire("near", "b", Want::ExclusiveOnce, 60_000, 2, false);
    server.acquire("far", "b", Want::ExclusiveOnce, 60_000, 3, false);
    assert_eq!(server.tick(), [0_u64; 0]);
    server.keys.set_expiry("far", START + 50);
    server.at(51);
    assert!(matches!(server.acquire("near", "c", Want::ExclusiveOnce, 60_000, 4, false), Entered::Waiting(_)));
    assert_eq!(server.tick(), [3]);
}

/// While many holds of an ended session are still to be released, the head of the queue may own one of them.
#[test]
fn an_upgrade_does_not_push_a_reader_out_while_a_large_session_ends() {
    let mut server = Server::new();
    // The first deadline is released last.
    server.acquire("k", "o", Want::Shared, 20_000, 1, true);
    for number in 0..300 {
        server.acquire("k", &format!("x{number}"), Want::Shared, 60_000, 1, true);
    }
    server.acquire("k", "p", Want::Shared, 60_000, 2, false);
    assert!(matches!(server.acquire("k", "o", Want::Exclusive, 60_000, 3, false), Entered::Waiting(_)));
    server.at(10);
    server.gone(1);
    assert_eq!(server.tick(), [0_u64; 0]);
    assert_eq!(server.holds("k"), [("p".to_owned(), Mode::Shared)]);
    assert_eq!(server.engine.gauges().sessions, 0);
}

/// More permits for an owner whose hold has ended with its session are a new hold, which stays.
#[test]
fn permits_that_were_waited_for_outlive_the_session_of_the_permits_before() {
    let mut server = Server::new();
    let (one, limit) = (NonZeroU32::MIN, NonZeroU32::new(400).unwrap());
    server.acquire("k", "o", Want::Shared, 20_000, 1, true);
    for number in 0..300 {
        server.acquire("k", &format!("x{number}"), Want::Shared, 60_000, 1, true);
    }
    server.acquire("k", "p", Want::Permits { permits: NonZeroU32::new(99).unwrap(), limit }, 60_000, 2, false);
    let more = Want::Permits { permits: one, limit };
    assert!(matches!(server.acquire("k", "o", more, 60_000, 3, false), Entered::Waiting(_)));
    server.at(10);
    server.gone(1);
    assert_eq!(server.tick(), [3]);
    assert_eq!(server.holds("k"), [("p".to_owned(), Mode::Shared), ("o".to_owned(), Mode::Shared)]);
}

/// A replica closes the key after each effect, the primary after all of them.
#[test]
fn the_key_ends_at_the_same_time_on_a_replica_where_one_visit_makes_several_changes() {
    let mut server = Server::new();
    server.acquire("k", "a", Want::Shared, 60_000, 1, true);
    server.acquire("k", "b", Want::Shared, 15_000, 2, true);
    server.keys.set_expiry("k", START + 16_000);
    let mut replica = Keys { ms: START, ..Keys::default() };
    server.keys.replicate_to(&mut replica);
    replica.set_expiry("k", START + 16_000);
    // In one visit: the end of one session, after which the early end is none, and the renewal of the other.
    for renewal in 0..3 {
        server.at(5_000 * renewal);
        if renewal == 1 {
            server.gone(1);
        }
        server.tick();
        server.keys.replicate_to(&mut replica);
        assert_eq!(server.keys.expiry("k"), replica.expiry("k"), "{renewal}");
    }
    assert_eq!(server.holds("k"), [("b".to_owned(), Mode::Shared)]);
}

/// A client that only waits does not change a TTL that an operator has set: nothing of that is replicated.
#[test]
fn a_waiter_that_leaves_does_not_change_a_ttl_that_somebody_set() {
    for expiry in [None, Some(START + 600_000), Some(START + 30_000)] {
        for is_set_before in [false, true] {
            let mut server = Server::new();
            server.acquire("k", "a", Want::ExclusiveOnce, 60_000, 1, false);
            let set = |server: &mut Server| server.keys.keys.get_mut(&b"k"[..]).unwrap().1 = expiry.map(UnixMs::new);
            if is_set_before {
                set(&mut server);
            }
            let waiting = server.acquire("k", "b", Want::ExclusiveOnce, 60_000, 2, false);
            let Entered::Waiting(id) = waiting else { panic!("{waiting:?}") };
            if !is_set_before {
                set(&mut server);
            }
            server.engine.abandon(id);
            server.tick();
            assert_eq!(server.keys.expiry("k"), expiry, "{is_set_before}");
        }
    }
}

/// The deadlock search takes one millisecond at most, also where everybody ahead waits for the next in the same queue.
#[test]
fn to_join_a_long_queue_of_readers_is_cheap() {
    let mut server = Server::new();
    server.acquire("k", "w", Want::ExclusiveOnce, 60_000, 1, false);
    let mut best = std::time::Duration::MAX;
    for number in 0..7900 {
        let start = std::time::Instant::now();
        server.acquire("k", &format!("r{number}"), Want::Shared, 60_000, 2 + number, false);
        if number >= 7890 {
            best = best.min(start.elapsed());
        }
    }
    assert!(best < std::time::Duration::from_millis(15), "{best:?}");
}

const READERS: u64 = 300;

/// A writer holds `k`, [`READERS`] wait for it as clients 100 and on, and behind them another writer.
fn crowd() -> Server {
    let mut server = Server::new();
    server.acquire("k", "writer", Want::Exclusive, 1_000, 1, false);
    for number in 0..READERS {
        server.acquire("k", &format!("r{number}"), Want::Shared, 60_000, 100 + number, false);
    }
    server.acquire("k", "next", Want::Exclusive, 60_000, 2, false);
    server.at(1_001);
    server
}

#[test]
fn a_crowd_of_readers_gets_in_by_pieces_and_in_order() {
    let mut server = crowd();
    let mut order = server.turn();
    assert!(!order.is_empty() && order.len() < 100, "{} in one turn", order.len());
    // A reader that asks between two pieces queues behind the writer. Its command serves the next piece.
    assert!(matches!(server.acquire("k", "late", Want::Shared, 60_000, 3, false), Entered::Waiting(_)));
    order.extend(server.engine.take_outputs().into_iter().filter_map(granted));
    while (order.len() as u64) < READERS {
        let next = server.turn();
        assert!(next.len() < 100, "{} in one turn", next.len());
        order.extend(next);
    }
    assert_eq!(order, (100..100 + READERS).collect::<Vec<_>>());
    assert_eq!(server.tick(), [0_u64; 0]);
    assert_eq!(server.holds("k").len() as u64, READERS);
}

#[test]
fn a_flush_between_two_pieces_lets_the_rest_of_a_crowd_in() {
    let mut server = crowd();
    let mut order = server.turn();
    server.keys.keys.clear();
    let now = server.keys.now();
    server.engine.input(Input::Flushed(None), now);
    while (order.len() as u64) < READERS {
        let next = server.turn();
        assert!(!next.is_empty() && next.len() < 100, "{} in one turn", next.len());
        order.extend(next);
    }
    assert_eq!(order, (100..100 + READERS).collect::<Vec<_>>());
}

#[test]
fn a_demotion_between_two_pieces_lets_nobody_else_in() {
    let mut server = crowd();
    let entered = server.turn().len();
    let now = server.keys.now();
    server.engine.input(Input::RoleChanged, now);
    server.keys.ms += 1;
    server.engine.tick(&mut server.keys, Role::Replica);
    assert!(server.engine.take_outputs().into_iter().filter_map(granted).next().is_none());
    assert_eq!(server.holds("k").len(), entered);
}

/// The sessions of a flushed database are looked at a piece at a time. Meanwhile their owners come back.
#[test]
fn a_session_that_returns_right_after_a_flush_is_bound() {
    let mut server = Server::new();
    for number in 0..READERS {
        server.acquire(&format!("k{number}"), "o", Want::ExclusiveOnce, 60_000, 1, true);
    }
    server.keys.keys.clear();
    let now = server.keys.now();
    server.engine.input(Input::Flushed(None), now);
    for number in (0..READERS).rev() {
        server.acquire(&format!("k{number}"), "o", Want::ExclusiveOnce, 60_000, 1, true);
    }
    server.tick();
    assert_eq!(server.engine.gauges().sessions as u64, READERS);
    server.gone(1);
    server.tick();
    assert_eq!(server.engine.gauges().sessions, 0);
    assert!(server.keys.keys.is_empty());
}
