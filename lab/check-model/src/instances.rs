//! The small instances that `make check-model` explores: who takes part in each, and what may happen.

use dlock_core::{Command, Entries, Mode};
use dlock_testkit::histories::{How, Lease, Op, Somebody, TokenPick, TokenRule};

use crate::scope::{Event, Scope, Turns};

/// All scopes.
pub fn scopes() -> Vec<Scope> {
    vec![
        exclusive(),
        readers(),
        semaphore(),
        slots(),
        threads(),
        several(),
        sessions(),
        sessions_of_several(),
        named_sessions(),
        grace(),
        caps(),
        requests(),
        turns(),
        failures(),
    ]
}

/// A lease, in ms.
const SHORT: u64 = 100;
/// The shortest lease that a session may have, in ms.
const LONG: u64 = 300;

/// A request that waits.
const fn waits(how: How) -> How {
    How { blocks: true, ..tries(how) }
}

/// A request that does not wait.
const fn tries(how: How) -> How {
    How { lease: Lease::For(SHORT), ..how }
}

const fn in_session(how: How) -> How {
    How { binds: true, lease: Lease::For(LONG), ..how }
}

const fn in_named_session(how: How) -> How {
    How { named: Some(0), ..in_session(how) }
}

const fn capped(how: How, cap: u64) -> How {
    How { cap: Some(cap), ..how }
}

const fn asked(how: How, id: u8) -> How {
    How { id: Some(id), ..how }
}

const ONCE: How = How::new(Command::Acquire);
const AGAIN: How = How::new(Command::Racquire);
const READ: How = How::new(Command::Rlock);
/// On all keys.
const ALL: How = How::new(Command::Macquire);

fn release(mode: Option<Mode>, entries: Entries) -> Op {
    Op::Release { key: 0, who: Somebody::Any(0), mode, entries, token: None, id: None }
}

fn release_token(pick: TokenPick) -> Op {
    let token = Some(pick);
    Op::Release { key: 0, who: Somebody::Any(0), mode: None, entries: Entries::ONE, token, id: None }
}

fn two() -> Entries {
    Entries::Some(std::num::NonZeroU32::MIN.saturating_add(1))
}

fn renew(lease: Lease, token: TokenRule, binds: bool) -> Op {
    Op::Renew { client: 0, key: 0, who: Somebody::Any(0), mode: None, lease, token, binds, named: None }
}

fn scope(name: &'static str) -> Scope {
    Scope {
        name,
        owners: 3,
        keys: 1,
        clients: 2,
        enters: Vec::new(),
        others: vec![release(None, Entries::ONE)],
        events: vec![Event::Time],
        grace: None,
        max_waiters: None,
        turns: Turns::EndWithEachAction,
        threads: 1,
        depth: [8, 5],
        reaches: &["granted", "refused", "waits", "served"],
    }
}

fn exclusive() -> Scope {
    Scope {
        enters: vec![tries(ONCE), waits(ONCE), tries(AGAIN), waits(AGAIN)],
        others: vec![
            release(None, Entries::ONE),
            release(None, Entries::All),
            release(None, two()),
            release_token(TokenPick::Of(0)),
            release_token(TokenPick::Never),
            renew(Lease::Own, TokenRule::Any, false),
            renew(Lease::For(200), TokenRule::Is(TokenPick::Never), false),
        ],
        events: vec![Event::Time, Event::HalfTime, Event::Delete, Event::Unblock, Event::Gone],
        depth: [20, 8],
        ..scope("exclusive")
    }
}

fn readers() -> Scope {
    Scope {
        clients: 3,
        enters: vec![tries(READ), waits(READ), tries(AGAIN), waits(AGAIN)],
        others: vec![
            release(Some(Mode::Shared), Entries::ONE),
            release(Some(Mode::Exclusive), Entries::ONE),
            release(None, Entries::All),
            release(None, Entries::ONE),
        ],
        events: vec![Event::Time, Event::HalfTime, Event::Unblock],
        reaches: &["granted", "waits", "deadlock", "served", "upgraded"],
        depth: [11, 6],
        ..scope("readers and upgrades")
    }
}

fn semaphore() -> Scope {
    Scope {
        clients: 3,
        enters: vec![
            tries(How::permits(1, 2)),
            waits(How::permits(1, 2)),
            waits(How::permits(2, 2)),
            tries(How::permits(2, 3)),
            waits(ONCE),
            tries(AGAIN),
            tries(READ),
        ],
        others: vec![release(None, Entries::ONE), release(None, two()), release(None, Entries::All)],
        events: vec![Event::Time, Event::HalfTime, Event::Unblock],
        reaches: &["granted", "refused", "waits", "deadlock", "served"],
        depth: [10, 5],
        ..scope("semaphore, limit 2")
    }
}

/// Sessions end, leases run out, and holders upgrade while others wait for numbers.
fn slots() -> Scope {
    Scope {
        clients: 3,
        enters: vec![
            tries(How::slot(2)),
            waits(How::slot(2)),
            in_session(tries(How::slot(3))),
            tries(How::permits(1, 3)),
            waits(ONCE),
            tries(AGAIN),
        ],
        others: vec![release(None, Entries::ONE), release(None, Entries::All)],
        events: vec![Event::Time, Event::HalfTime, Event::Gone, Event::Pause],
        reaches: &["granted", "waits", "served", "slot 0", "a higher slot", "session ended in a pause"],
        depth: [8, 5],
        ..scope("numbers of permits")
    }
}

/// An owner may wait on two connections: a writer waits twice, or holders of a permit wait for another behind a writer.
fn threads() -> Scope {
    Scope {
        clients: 3,
        threads: 2,
        enters: vec![tries(How::permits(1, 2)), waits(How::permits(1, 2)), waits(ONCE)],
        events: vec![Event::Time, Event::Unblock],
        reaches: &["granted", "refused", "waits", "deadlock", "served"],
        depth: [9, 5],
        ..scope("owners that wait twice")
    }
}

fn several() -> Scope {
    Scope {
        keys: 2,
        clients: 3,
        enters: vec![waits(ALL), tries(ALL), waits(ONCE), tries(ONCE), waits(READ)],
        events: vec![Event::Time, Event::Delete, Event::Unblock],
        reaches: &["several granted", "waits", "deadlock", "served", "several served"],
        depth: [6, 4],
        ..scope("two locks")
    }
}

fn sessions() -> Scope {
    Scope {
        enters: vec![in_session(tries(ONCE)), in_session(waits(ONCE)), in_session(waits(READ)), tries(ONCE)],
        others: vec![
            release(None, Entries::ONE),
            renew(Lease::For(LONG), TokenRule::Any, true),
            renew(Lease::For(SHORT), TokenRule::Any, false),
        ],
        events: vec![Event::Time, Event::Gone, Event::Delete, Event::Pause],
        depth: [8, 5],
        ..scope("sessions")
    }
}

fn sessions_of_several() -> Scope {
    Scope {
        keys: 2,
        enters: vec![in_session(waits(ALL)), in_session(waits(ONCE)), tries(ONCE)],
        events: vec![Event::Time, Event::Gone, Event::Flush],
        reaches: &["several granted", "waits", "several served"],
        depth: [14, 4],
        ..scope("sessions on two locks")
    }
}

fn named_sessions() -> Scope {
    let bind = Op::Renew {
        client: 0,
        key: 0,
        who: Somebody::Any(0),
        mode: None,
        lease: Lease::For(LONG),
        token: TokenRule::Any,
        binds: true,
        named: Some(0),
    };
    Scope {
        owners: 2,
        enters: vec![
            in_named_session(tries(ONCE)),
            in_named_session(waits(ONCE)),
            in_session(tries(ONCE)),
            waits(READ),
        ],
        others: vec![release(None, Entries::ONE), bind],
        events: vec![Event::Time, Event::Session, Event::Gone, Event::Pause, Event::FailOver],
        reaches: &["granted", "waits", "served", "no session", "session closed", "session ended in the queue"],
        depth: [10, 5],
        ..scope("named sessions")
    }
}

fn grace() -> Scope {
    Scope {
        grace: Some(SHORT),
        enters: vec![in_session(waits(ONCE)), in_session(waits(READ)), tries(ONCE), waits(READ)],
        others: vec![release(None, Entries::ONE), renew(Lease::For(LONG), TokenRule::Any, true)],
        events: vec![Event::Time, Event::Gone, Event::Pause],
        depth: [9, 5],
        ..scope("sessions with a grace")
    }
}

fn caps() -> Scope {
    Scope {
        enters: vec![
            capped(in_session(waits(READ)), LONG + SHORT),
            capped(tries(AGAIN), 2 * SHORT),
            tries(AGAIN),
            waits(ONCE),
        ],
        others: vec![
            release(None, Entries::ONE),
            renew(Lease::Own, TokenRule::Any, false),
            renew(Lease::For(LONG), TokenRule::Any, true),
        ],
        events: vec![Event::Time, Event::HalfTime, Event::Gone],
        grace: Some(SHORT),
        reaches: &["granted", "waits", "served", "renewed up to a cap", "watchdog up to a cap"],
        depth: [8, 5],
        ..scope("holds with a cap")
    }
}

fn requests() -> Scope {
    Scope {
        owners: 2,
        keys: 2,
        clients: 3,
        enters: vec![
            asked(waits(ONCE), 1),
            asked(tries(AGAIN), 1),
            asked(waits(AGAIN), 2),
            asked(waits(READ), 1),
            asked(waits(ALL), 1),
        ],
        others: vec![
            release(None, Entries::ONE),
            Op::Release { key: 0, who: Somebody::Any(0), mode: None, entries: Entries::ONE, token: None, id: Some(3) },
        ],
        events: vec![Event::Time, Event::Gone],
        reaches: &["granted", "waits", "replayed", "taken over", "served"],
        depth: [5, 4],
        ..scope("requests sent twice")
    }
}

fn turns() -> Scope {
    Scope {
        keys: 2,
        enters: vec![waits(ONCE), tries(AGAIN), waits(ALL), waits(READ), tries(How::permits(1, 2))],
        events: vec![Event::Time, Event::Delete, Event::Flush, Event::Unblock],
        turns: Turns::EndSometime,
        max_waiters: Some(3),
        depth: [6, 4],
        ..scope("turns of several commands")
    }
}

fn failures() -> Scope {
    Scope {
        keys: 2,
        enters: vec![waits(ONCE), tries(ONCE), in_session(waits(READ)), waits(ALL)],
        events: vec![
            Event::Time,
            Event::Gone,
            Event::Pause,
            Event::RefuseWrites,
            Event::Demote,
            Event::FailOver,
            Event::Flush,
        ],
        depth: [5, 4],
        ..scope("pauses, refused writes, failovers")
    }
}
