//! Named sessions: when they end, and their list.

use dlock_core::engine::{Heartbeat, OpenIf, UserState};
use dlock_core::{Keyspace, Lease, SessionId};

use crate::Server;

/// Sends a heartbeat after which the session ends `ms` later.
fn beat(server: &mut Server, id: &str, user: &[u8], ms: u64) {
    let (id, timeout) = (SessionId::new(id.as_bytes()).unwrap(), Lease::new(ms).unwrap());
    let times = (server.space.uptime(), server.space.now());
    let beat = Heartbeat { id: &id, user, timeout, only: OpenIf::Any };
    server.engine.keep_session(beat, times, || UserState::Enabled).unwrap();
}

fn is_open(server: &Server, id: &str, user: &[u8]) -> bool {
    server.engine.look_up_session(&SessionId::new(id.as_bytes()).unwrap(), Some(user)).is_ok()
}

/// Heartbeats that arrived during the stall are read after the timer's turn.
#[test]
fn a_lost_user_ends_no_session_of_another_after_a_stall() {
    for state in [UserState::Enabled, UserState::Disabled, UserState::Unknown] {
        let mut server = Server::new();
        server.pass_ms(1);
        for number in 0..3 {
            beat(&mut server, &number.to_string(), b"lost", 60_000);
        }
        beat(&mut server, "s", b"other", 400);
        for _ in 0..7 {
            server.pass_ms(50);
            server.tick();
        }
        server.space.lost_users.insert(b"lost".to_vec(), state);
        server.pass_ms(700);
        server.tick();
        assert_eq!(is_open(&server, "0", b"lost"), state == UserState::Enabled);
        assert!(is_open(&server, "s", b"other"), "{state:?}");
        beat(&mut server, "s", b"other", 400);
        server.pass_ms(50);
        server.tick();
        assert!(is_open(&server, "s", b"other"), "{state:?}");
        // Without a heartbeat it ends.
        for _ in 0..8 {
            server.pass_ms(50);
            server.tick();
        }
        assert!(!is_open(&server, "s", b"other"), "{state:?}");
        server.engine.audit().unwrap();
    }
}

/// `COUNT n` shows the first sessions by user and id, not those that were opened first.
#[test]
fn a_list_of_sessions_has_the_first_by_user_and_id() {
    let mut server = Server::new();
    server.pass_ms(1);
    for number in 0..200 {
        let user: &[u8] = if number % 2 == 0 { b"one" } else { b"two" };
        beat(&mut server, &format!("{:03}", number * 7 % 200), user, 60_000);
    }
    let all: Vec<(String, String)> = list(&server, None, 1000);
    assert!(all.len() == 200 && all.is_sorted());
    for most in [0, 1, 2, 5, 99, 100, 101, 150, 199, 200, 201] {
        assert_eq!(list(&server, None, most), all[..most.min(200)], "{most}");
        assert_eq!(list(&server, Some(b"two"), most), all[100..][..most.min(100)], "{most}");
    }
}

fn list(server: &Server, user: Option<&[u8]>, most: usize) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let listed = server.engine.list_sessions(user, most, server.space.uptime());
    listed.iter().map(|session| (text(&session.user), text(session.id.as_bytes()))).collect()
}
