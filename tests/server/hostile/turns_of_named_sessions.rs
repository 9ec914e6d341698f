//! A named session of a hundred thousand holds holds the event loop no longer than a small one.

use super::long_turns::{PIECE, within};
use crate::support::crowds::{MANY, named_session_of_many};
use crate::support::replica::counter;
use crate::support::turn::least_of_three;
use crate::support::{Client, Server, soon};

/// The request of a hold by its number.
type Request = fn(usize) -> String;

/// The holds of a session: each of another lock, or all of one.
const SHAPES: [(&str, Request); 2] = [
    ("locks", |n| format!("DLOCK.ACQUIRE k{n} a PX 600000 SESSIONID s")),
    ("holds of one lock", |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSIONID s")),
];

/// Fails if a turn takes longer than [`PIECE`] while `act` works on a session of a hundred thousand holds, in each shape.
#[track_caller]
fn is_quick(what: &str, act: impl Fn(&mut Client)) {
    for (shape, request) in SHAPES {
        let found = least_of_three(|| {
            let server = Server::start();
            let mut client = named_session_of_many(&server, request);
            server.longest_turn(|| act(&mut client))
        });
        within(PIECE, found, &format!("{what}, {shape}"));
    }
}

fn all_are_released(client: &mut Client) {
    soon("all are released", || counter(client, "sessions") == 0 && client.int("DBSIZE") == 0);
}

#[test]
fn a_named_session_of_a_hundred_thousand_holds_is_kept_by_a_heartbeat_at_once() {
    is_quick("heartbeats", |client| {
        for _ in 0..100 {
            assert_eq!(client.int("DLOCK.SESSION s PX 600000 XX"), MANY as i64);
        }
    });
}

#[test]
fn a_named_session_of_a_hundred_thousand_holds_is_listed_up_to_ten_thousand() {
    is_quick("LIST", |client| {
        for (command, shown) in [("DLOCK.SESSION s LIST", 100), ("DLOCK.SESSION s LIST COUNT 0", 10_000)] {
            let listed = client.run(command);
            assert_eq!(listed.as_sequence().map(<[_]>::len), Some(shown), "{command}");
        }
    });
}

#[test]
fn a_named_session_of_a_hundred_thousand_holds_is_closed_in_pieces() {
    is_quick("CLOSE", |client| {
        assert_eq!(client.int("DLOCK.SESSION s CLOSE"), MANY as i64);
        all_are_released(client);
    });
}

#[test]
fn a_named_session_of_a_hundred_thousand_holds_ends_in_pieces_after_its_time() {
    is_quick("end", |client| {
        assert_eq!(client.int("DLOCK.SESSION s PX 300 XX"), MANY as i64);
        all_are_released(client);
    });
}
