//! The longest that a `PING` waits while the server does what a client has made large.
//!
//! Servers, crowds and the watch are those of the tests. A stall counts by the CPU time that the server took in it.

use std::time::Duration;

use dlock_testkit::crowds::{
    MANY, crossing, half_lapsed, join, named_session_of_many, queue, readers, readers_until, reads_of, session_of_many,
    several_held, waiters_for_all,
};
use dlock_testkit::replica::{counter, info_field};
use dlock_testkit::{Client, Server, Setup, req, soon};

use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};
use crate::server::Programs;
use crate::targets::{Bound, Target, ratio};

/// Work that a client has made large.
pub struct Case {
    /// For figures.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// A remark: why the work is done in one piece, if it is, or why it is measured.
    pub remark: &'static str,
    measure: fn(&Setup) -> Duration,
}

pub static CASES: [Case; 20] = [
    case("search-480", "deadlock search, 480 waiters, owners of 1,000 bytes", "", |setup| search(setup, 480)),
    case("search-700", "deadlock search, 700 waiters, owners of 1,000 bytes", "", |setup| search(setup, 700)),
    case(
        "searches",
        "300 clients begin to wait for a lock of 8,000 readers",
        "300 commands that arrive together",
        searches,
    ),
    case("read-ended", "CHECK, INFO and INFO FULL beside 100,000 ended holds in a pause", "", read_ended),
    case("read-grace", "INFO and INFO FULL beside 100,000 ended holds in a grace", WHERE_MEASURED, read_grace),
    case("read-lapsed", "INFO and INFO FULL beside 50,000 lapsed of 100,000 holds", WHERE_MEASURED, read_lapsed),
    case("end-locks", "end of a session of 100,000 locks", "", end_of_locks),
    case("end-holds", "end of a session of 100,000 holds of one lock", "", end_of_holds),
    case(
        "named-list",
        "LIST COUNT 0 of a named session of 100,000 locks",
        "10,000 are shown in one reply",
        list_of_named,
    ),
    case("named-close", "CLOSE of a named session of 100,000 locks", "", |setup| end_of_named(setup, "CLOSE")),
    case("named-end", "end of a named session of 100,000 locks after its time", "", |setup| {
        end_of_named(setup, "PX 300 XX")
    }),
    case("lapsed", "RLOCK beside 100,000 lapsed holds", "", drop_lapsed),
    case("set-over", "SET over a key with 1,000 MACQUIRE waiters", "", set_over),
    case("joins", "1,000 clients join the queues of 64 locks", "1,000 commands that arrive together", joins),
    case("grant-readers", "RELEASE that grants 3,000 readers", "", grant_readers),
    case("xadd", "XADD for 3,000 clients in XREAD BLOCK, without the module", "for comparison", answer_stream),
    case("swapdb", "SWAPDB with 100,000 session locks", "", |setup| beside_sessions(setup, "SWAPDB 0 1")),
    case("flushall", "FLUSHALL with 100,000 session locks", "the server deletes all keys in one command", |setup| {
        beside_sessions(setup, "FLUSHALL SYNC")
    }),
    case("flushall-async", "FLUSHALL ASYNC with 100,000 session locks", "", |setup| {
        beside_sessions(setup, "FLUSHALL ASYNC")
    }),
    case("flushall-strings", "FLUSHALL with 100,000 strings, without the module", "for comparison", flush_strings),
];

/// A remark on the commands of [`reads_of`].
const WHERE_MEASURED: &str = "and MEMORY USAGE, where it does not crash the server";

const fn case(name: &'static str, label: &'static str, remark: &'static str, measure: fn(&Setup) -> Duration) -> Case {
    Case { name, label, remark, measure }
}

/// The targets of what can be divided.
pub const TARGETS: [Target; 13] = [
    at_most_5("deadlock search, 480 waiters", "stall/search-480"),
    at_most_5("deadlock search, 700 waiters", "stall/search-700"),
    at_most_5("CHECK and INFO beside ended holds", "stall/read-ended"),
    at_most_5("INFO beside holds in a grace", "stall/read-grace"),
    at_most_5("INFO beside lapsed holds", "stall/read-lapsed"),
    at_most_5("end of a session of 100,000 locks", "stall/end-locks"),
    at_most_5("end of a session of 100,000 holds", "stall/end-holds"),
    at_most_5("RLOCK beside 100,000 lapsed holds", "stall/lapsed"),
    at_most_5("SET over a key with 1,000 waiters", "stall/set-over"),
    at_most_5("1,000 joins of 64 queues", "stall/joins"),
    at_most_5("RELEASE that grants 3,000 readers", "stall/grant-readers"),
    at_most_5("SWAPDB with 100,000 session locks", "stall/swapdb"),
    at_most_5("FLUSHALL ASYNC with 100,000 session locks", "stall/flushall-async"),
];

const fn at_most_5(case: &'static str, figure: &'static str) -> Target {
    ratio(case, figure, Bound::AtMost(5.0))
}

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    // A plain time needs fewer rounds than a ratio.
    let rounds = rounds.min(ROUNDS);
    let setup = programs.testkit();
    for case in &CASES {
        eprintln!("  {}", case.label);
        let stalls = (0..rounds).map(|_| (case.measure)(&setup).as_secs_f64() * 1e3);
        ledger.note(format!("stall/{}", case.name), Figure::of_rounds(&Sample::new(stalls)));
    }
    Ok(())
}

fn search(setup: &Setup, waiters: usize) -> Duration {
    const BYTES: usize = 1000;
    let server = setup.clone().start();
    let _queue = crossing(&server, waiters, BYTES);
    let (mut client, request) = (server.client(), format!("DLOCK.WLOCK k0 {:x>BYTES$} BLOCK 1", ""));
    server.longest_turn(|| (0..3).for_each(|_| client.nil(&*request)))
}

fn searches(setup: &Setup) -> Duration {
    let (server, mut client) = setup.clone().start().with_client();
    client.pour((0..8000).map(|n| format!("DLOCK.RLOCK k {n} PX 600000")));
    let mut crowd: Vec<_> = (0..300).map(|_| server.client()).collect();
    server.longest_turn(|| {
        crowd.iter_mut().enumerate().for_each(|(n, client)| client.send(format!("DLOCK.WLOCK k x{n} BLOCK 0")));
        server.left_waiting(300);
    })
}

fn read_ended(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
    let token = client.int("DLOCK.RLOCK k last PX 600000");
    client.ok("CLIENT PAUSE 600000 WRITE");
    client.watch_close(session);
    server.longest_turn(|| {
        for request in [format!("DLOCK.CHECK k {token}"), "DLOCK.INFO k".to_owned(), "DLOCK.INFO k FULL".to_owned()] {
            client.run(&*request);
        }
    })
}

fn read_grace(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
    let reads = reads_of(&mut client);
    client.ok("CONFIG SET dlock.session-grace 600000");
    client.ok("CLIENT PAUSE 600000 WRITE");
    client.watch_close(session);
    server.longest_turn(|| reads.iter().for_each(|request| drop(client.run(*request))))
}

/// Reads beside holds that have lapsed, and again after a command that has dropped them. They are freed later.
fn read_lapsed(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let mut client = half_lapsed(&server);
    let reads = reads_of(&mut client);
    let lapsed = server.longest_turn(|| reads.iter().for_each(|request| drop(client.run(*request))));
    client.int("DLOCK.RLOCK k new PX 600000");
    lapsed.max(server.longest_turn(|| reads.iter().for_each(|request| drop(client.run(*request)))))
}

fn end_of_locks(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let (session, mut client) = (session_of_many(&server), server.client());
    server.longest_turn(|| {
        drop(session);
        soon("all are released", || client.int("DBSIZE") == 0);
    })
}

fn end_of_holds(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let (session, mut client) = readers(&server, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 SESSION"));
    let ended = i64::try_from(MANY).unwrap_or(i64::MAX);
    server.longest_turn(|| {
        drop(session);
        soon("all are released", || counter(&mut client, "session_ends") == ended);
    })
}

const NAMED: fn(usize) -> String = |n| format!("DLOCK.ACQUIRE k{n} a PX 600000 SESSIONID s");

fn list_of_named(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let mut client = named_session_of_many(&server, NAMED);
    server.longest_turn(|| drop(client.run("DLOCK.SESSION s LIST COUNT 0")))
}

/// Ends the session by this command, or after the time that the command sets.
fn end_of_named(setup: &Setup, command: &str) -> Duration {
    let server = setup.clone().start();
    let mut client = named_session_of_many(&server, NAMED);
    server.longest_turn(|| {
        client.int(format!("DLOCK.SESSION s {command}"));
        soon("all are released", || client.int("DBSIZE") == 0);
    })
}

fn drop_lapsed(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let (mut client, end) = readers_until(&server);
    let (dump, last) = (client.bytes("DUMP k"), client.end_of("k"));
    client.pass(end);
    client.ok(req!["RESTORE", "copy", last, &dump, "ABSTTL"]);
    server.longest_turn(|| drop(client.run("DLOCK.RLOCK copy new PX 600000")))
}

fn set_over(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    let mut client = several_held(&server);
    let mut waiters = waiters_for_all(&server);
    join(&server, &mut waiters);
    server.longest_turn(|| {
        client.ok("SET k0 over");
        server.left_waiting(0);
    })
}

fn joins(setup: &Setup) -> Duration {
    let server = setup.clone().start();
    several_held(&server);
    let mut waiters = waiters_for_all(&server);
    server.longest_turn(|| join(&server, &mut waiters))
}

fn grant_readers(setup: &Setup) -> Duration {
    let (server, mut client) = setup.clone().start().with_client();
    client.ok("CONFIG SET dlock.max-waiters 0");
    client.int("DLOCK.WLOCK k writer PX 600000");
    let _readers = queue(&server, READERS, |n| format!("DLOCK.RLOCK k reader-{n} PX 600000 BLOCK 0"));
    server.longest_turn(|| {
        client.int("DLOCK.RELEASE k writer");
        server.left_waiting(0);
    })
}

fn answer_stream(setup: &Setup) -> Duration {
    let server: Server = setup.clone().without_module().start();
    let mut client = server.client();
    let mut readers: Vec<_> = (0..READERS).map(|_| server.client()).collect();
    readers.iter_mut().for_each(|reader| reader.send("XREAD BLOCK 0 STREAMS k $"));
    let blocked = |client: &mut Client| info_field(client, "clients", "blocked_clients");
    soon("all wait", || blocked(&mut client) == Some(READERS.to_string()));
    server.longest_turn(|| {
        client.run("XADD k * a 1");
        soon("all are answered", || blocked(&mut client).as_deref() == Some("0"));
    })
}

fn beside_sessions(setup: &Setup, request: &str) -> Duration {
    let server = setup.clone().start();
    let _session = session_of_many(&server);
    let mut client = server.client();
    server.longest_turn(|| client.ok(request))
}

fn flush_strings(setup: &Setup) -> Duration {
    let server: Server = setup.clone().without_module().start();
    let mut client = server.client();
    client.pour((0..MANY).map(|n| format!("SET k{n} a PX 600000")));
    server.longest_turn(|| client.ok("FLUSHALL SYNC"))
}

const ROUNDS: usize = 3;
const READERS: usize = 3_000;
