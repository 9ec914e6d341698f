//! Rights that a client loses while its request waits.

use dlock_core::engine::{Answer, Call, Entered, Fault, Output, Role, Settings};
use dlock_core::{ClientId, Engine, Entries, Keyspace, Lease, LeaseChoice, Release, Request, Want};
use dlock_testkit::keyspace::MemoryKeyspace;

use crate::{name, owner};

/// A server on which clients with odd numbers have lost their rights. A ticket is the number of a client.
struct Server {
    engine: Engine<u64>,
    space: MemoryKeyspace,
}

impl Server {
    fn new() -> Server {
        let mut engine = Engine::new(7, Settings::new(Lease::new(60_000).unwrap()));
        engine.ask_rights_by(|client| client % 2 == 0);
        let mut space = MemoryKeyspace::default();
        space.set_now_us(1_000_000_000);
        Server { engine, space }
    }

    fn ask(&mut self, keys: &[&str], client: u64, want: Want) -> Entered {
        let names: Vec<_> = keys.iter().map(|key| name(key)).collect();
        let call = Call { name: names[0], now: self.space.now(), client: ClientId(client) };
        let request = Request::new(owner(&client.to_string()), want, LeaseChoice::Own);
        let entered = match names.len() {
            1 => self.engine.acquire(&mut self.space, call, &request, Some(|_| client)),
            _ => self.engine.acquire_all(&mut self.space, call, &names, &request, Some(|_| client)),
        };
        entered.unwrap()
    }

    fn release(&mut self, key: &str, client: u64) {
        let owner = owner(&client.to_string());
        let release = Release { owner: &owner, mode: None, entries: Entries::ONE, token: None, request: None };
        let call = Call { name: name(key), now: self.space.now(), client: ClientId(client) };
        self.engine.release(&mut self.space, call, &release).unwrap();
    }

    /// Returns the clients that were answered: `true` for a grant, `false` for `NOPERM`.
    fn answers(&mut self) -> Vec<(u64, bool)> {
        let answers = self.engine.take_outputs().into_iter().filter_map(|output| match output {
            Output::Answer(client, Answer::Granted(..)) => Some((client, true)),
            Output::Answer(client, answer) => {
                assert_eq!(answer, Answer::Fault(Fault::NoRights));
                Some((client, false))
            }
            _ => None,
        });
        answers.collect()
    }
}

#[test]
fn a_waiter_without_rights_makes_room_in_the_same_turn() {
    let mut server = Server::new();
    assert!(matches!(server.ask(&["a"], 0, Want::Exclusive), Entered::Granted(_)));
    for (client, want) in
        [(1, Want::Exclusive), (3, Want::Shared), (2, Want::Shared), (5, Want::Shared), (4, Want::Shared)]
    {
        assert!(matches!(server.ask(&["a"], client, want), Entered::Waiting(_)));
    }
    assert_eq!(server.answers(), [], "rights are checked only when a waiter's turn comes");
    server.release("a", 0);
    assert_eq!(server.answers(), [(1, false), (3, false), (2, true), (5, false), (4, true)]);
}

#[test]
fn a_request_without_rights_for_several_locks_makes_room_in_all_queues() {
    let mut server = Server::new();
    assert!(matches!(server.ask(&["b"], 0, Want::Exclusive), Entered::Granted(_)));
    for (keys, client) in [(&["a", "b"][..], 1), (&["a"], 2), (&["b", "c"], 4), (&["c"], 6)] {
        assert!(matches!(server.ask(keys, client, Want::ExclusiveOnce), Entered::Waiting(_)));
    }
    server.release("b", 0);
    server.engine.tick(&mut server.space, Role::Primary);
    assert_eq!(server.answers(), [(1, false), (4, true), (2, true)]);
    server.release("c", 4);
    assert_eq!(server.answers(), [(6, true)]);
}
