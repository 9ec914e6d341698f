//! A server that refuses now and then to open a key for change. A refusal grants, removes and forgets nothing.

use std::num::NonZeroU64;

use dlock_core::engine::{Answer, Entered, Fault, Input, Output};
use dlock_core::{BindTo, ClientId, Engine, Keyspace, Lease, LeaseChoice, Request, Token, Want};
use dlock_testkit::keyspace::KeyName;

use crate::{Server, owner};

/// A server that refuses to open a key in a third of all cases. A request's ticket is the list of its keys.
struct Refusing {
    server: Server,
    engine: Engine<Vec<usize>>,
    seed: u64,
    /// The id of the connection that each client has now: each connection gets a new one.
    connections: Vec<u64>,
    granted: usize,
    refused: usize,
}

const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
const CLIENTS: u64 = 6;

fn key(number: usize) -> KeyName {
    (0, KEYS[number].as_bytes().to_vec())
}

impl Refusing {
    fn new(seed: u64) -> Refusing {
        let mut server = Server::new();
        server.space.refuses = NonZeroU64::new(3);
        let engine = Engine::new(seed, server.engine.settings());
        Refusing { server, engine, seed, connections: (1..=CLIENTS).collect(), granted: 0, refused: 0 }
    }

    fn disconnect(&mut self, client: usize) {
        let now = self.server.space.now();
        self.engine.lose_client(ClientId(self.connections[client]), now);
        self.connections[client] += CLIENTS;
    }

    /// Draws a number from 0 to `below` - 1, by a linear congruential generator.
    fn draw(&mut self, below: u64) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.seed >> 33) % below).unwrap()
    }

    /// Checks that every lock of a granted request has the hold.
    fn granted(&mut self, keys: &[usize], token: Token) {
        self.granted += 1;
        let now = self.server.space.now().ms();
        for number in keys {
            let lock = self.server.space.lock(&key(*number));
            assert!(lock.live_holds(now).any(|hold| hold.token == token), "{keys:?}, {token:?}: {lock:?}");
        }
    }

    fn take_answers(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Answer(keys, Answer::Granted(grant, _)) => self.granted(&keys, grant.token),
                Output::Answer(_, Answer::Fault(fault)) => panic!("{fault:?}"),
                _ => {}
            }
        }
    }

    fn ask(&mut self) {
        let number = self.draw(CLIENTS);
        let (client, connection) = (number, self.connections[number]);
        let first = self.draw(4);
        let second = (first + 1) % 4;
        let (is_several, binds, wants) = (self.draw(3) == 0, self.draw(3) == 0, self.draw(3));
        let want = match (is_several, wants) {
            (true, _) => Want::ExclusiveOnce,
            (false, 0) => Want::Shared,
            (false, _) => Want::Exclusive,
        };
        let lease = LeaseChoice::For(Lease::new(300 + self.draw(500) as u64).unwrap());
        let session = if binds { BindTo::Connection } else { BindTo::Nothing };
        let ask = Request { session, ..Request::new(owner(&format!("o{client}-{}", self.draw(2))), want, lease) };
        let may_wait = self.draw(2) == 0;
        let call = dlock_core::engine::Call {
            name: crate::name(KEYS[first]),
            now: self.server.space.now(),
            client: ClientId(connection),
        };
        let keys = if is_several { vec![first, second] } else { vec![first] };
        let ticket = keys.clone();
        let wait = may_wait.then_some(|_| ticket);
        let entered = if is_several {
            let names = [crate::name(KEYS[first]), crate::name(KEYS[second])];
            self.engine.acquire_all(&mut self.server.space, call, &names, &ask, wait)
        } else {
            self.engine.acquire(&mut self.server.space, call, &ask, wait)
        };
        match entered {
            Ok(Entered::Granted(grant) | Entered::Replayed(grant)) => self.granted(&keys, grant.token),
            Ok(Entered::Waiting(_) | Entered::Refused) | Err(Fault::Deadlock(_)) => {}
            Err(Fault::NotNow) => self.refused += 1,
            Err(fault) => panic!("{fault:?}"),
        }
    }

    fn release(&mut self) {
        let (client, number) = (self.draw(CLIENTS), self.draw(4));
        let owner = owner(&format!("o{client}-{}", self.draw(2)));
        let release = dlock_core::Release {
            owner: &owner,
            mode: None,
            entries: dlock_core::Entries::All,
            token: None,
            request: None,
        };
        let call = dlock_core::engine::Call {
            name: crate::name(KEYS[number]),
            now: self.server.space.now(),
            client: ClientId(self.connections[client]),
        };
        match self.engine.release(&mut self.server.space, call, &release) {
            Ok(_) => {
                let lock = self.server.space.lock(&key(number));
                assert!(lock.live_holds_of(&owner, self.server.space.now().ms()).next().is_none());
            }
            Err(Fault::NotNow) => self.refused += 1,
            Err(fault) => panic!("{fault:?}"),
        }
    }

    fn step(&mut self) {
        match self.draw(10) {
            0..4 => self.ask(),
            4..6 => self.release(),
            6 => {
                let client = self.draw(CLIENTS);
                self.disconnect(client);
            }
            7 => {
                let number = self.draw(4);
                self.server.space.delete(&key(number));
                let (db, gone) = key(number);
                let now = self.server.space.now();
                self.engine.input(Input::Removed(dlock_core::Name { db, key: &gone }), now);
            }
            _ => self.server.pass_ms(self.seed % 200),
        }
        self.tick();
    }

    fn tick(&mut self) {
        self.take_answers();
        self.engine.tick(&mut self.server.space, dlock_core::engine::Role::Primary);
        self.take_answers();
        self.engine.audit().unwrap();
    }
}

#[test]
fn a_key_that_does_not_open_now_is_neither_free_nor_gone() {
    let (mut granted, mut refused) = (0, 0);
    for seed in 0..200 {
        let mut refusing = Refusing::new(seed);
        (0..100).for_each(|_| refusing.step());
        (granted, refused) = (granted + refusing.granted, refused + refusing.refused);
        // No waiter and no session is left after the server opens its keys again and the clients leave.
        refusing.server.space.refuses = None;
        for _ in 0..300 {
            refusing.server.pass_ms(50);
            (0..3).for_each(|_| refusing.tick());
            (0..refusing.connections.len()).for_each(|client| refusing.disconnect(client));
        }
        assert_eq!(refusing.engine.gauges().waiters, 0, "seed {seed}");
        assert_eq!(refusing.engine.gauges().sessions, 0, "seed {seed}");
    }
    assert!(granted > 1000 && refused > 1000, "{granted} grants, {refused} refusals");
}
