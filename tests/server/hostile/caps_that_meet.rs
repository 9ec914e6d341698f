//! A cap falls on the same millisecond as a renewal, a release or a failover: hundreds of caps, one each millisecond.
//!
//! The server's clock is read before and after each command. Rounds go on until some commands certainly fell into the
//! millisecond of a cap.

use std::thread;
use std::time::{Duration, SystemTime};

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, int_of, list_of};

/// Holds of a round.
const HOLDS: i64 = 300;
/// Before the first cap, in ms: enough to set them all up on a busy machine.
const BEFORE: i64 = 1500;
/// Rounds at most, if the machine lets none of the commands meet a cap.
const ROUNDS: usize = 20;

/// Takes the locks of a round, which end at their caps. Returns the caps (unix ms).
fn take(client: &mut Client) -> Vec<i64> {
    client.ok("FLUSHALL");
    let hold = |n| format!("DLOCK.ACQUIRE k{n} a PX {0} MAXHOLD {0}", BEFORE + n);
    client.pipeline(&(0..HOLDS).map(hold).collect::<Vec<_>>());
    let ends = client.pipeline(&(0..HOLDS).map(|n| format!("PEXPIRETIME k{n}")).collect::<Vec<_>>());
    let caps: Vec<i64> = ends.into_iter().map(|end| int_of(&end.expect("no error"))).collect();
    assert!(caps.iter().all(|cap| *cap > 0), "a hold ended before all were taken: {caps:?}");
    caps
}

/// The machine's clock in ms, which is the server's.
fn machine() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// Waits until a moment, to the millisecond.
fn reach(moment: i64) {
    thread::sleep(Duration::from_millis((moment - machine() - 5).max(0) as u64));
    while machine() < moment {
        std::hint::spin_loop();
    }
}

/// The reply to `TIME`, in ms.
fn ms(time: &Value) -> i64 {
    let parts = list_of(time);
    int_of(&parts[0]) * 1000 + int_of(&parts[1]) / 1000
}

/// A command's answer about the lock of `a`: whether the hold was alive.
struct Said {
    cap: i64,
    /// The server's clock before and after, in ms.
    between: (i64, i64),
    alive: bool,
}

impl Said {
    /// Asserts that the answer is right. Returns whether the command fell into the millisecond of the cap.
    #[track_caller]
    fn meets_cap(&self) -> bool {
        let (Said { cap, between: (before, after), alive }, why) =
            (self, "the hold ends in the millisecond of its cap");
        assert!(
            if *alive { before < cap } else { after >= cap },
            "{before} to {after}, cap {cap}, alive {alive}: {why}"
        );
        before == cap && after == cap
    }
}

/// Sends `commands` between two looks at the clock. Returns the replies and the times that the clock showed.
#[track_caller]
fn between(client: &mut Client, commands: &[String]) -> (Vec<Value>, (i64, i64)) {
    let time = || "TIME".to_owned();
    let all: Vec<String> = [vec![time()], commands.to_vec(), vec![time()]].concat();
    let replies: Vec<Value> = client.pipeline(&all).into_iter().map(|reply| reply.expect("no error")).collect();
    let (first, last) = (ms(&replies[0]), ms(&replies[replies.len() - 1]));
    (replies[1..replies.len() - 1].to_vec(), (first, last))
}

/// Goes on with rounds until in one of them a cap was met.
#[track_caller]
fn until_they_meet(mut round: impl FnMut() -> usize) {
    assert!((0..ROUNDS).any(|_| round() > 0), "no command fell into the millisecond of a cap");
}

/// Renews the lock of `a` and asks for it as `b`: one of the two has it. Returns whether that met the cap.
#[track_caller]
fn renew(client: &mut Client, n: usize, cap: i64) -> bool {
    let renew = format!("DLOCK.RENEW k{n} a PX 60000");
    let commands = [renew.clone(), format!("DLOCK.ACQUIRE k{n} b PX 60000"), renew];
    let (replies, clock) = between(client, &commands);
    let [first, other, second] = &replies[..] else { panic!("{replies:?}") };
    let alive = [first, second].map(|reply| *reply == Value::Int(0));
    assert!(alive[0] || *first == Value::Nil, "the cap cuts each renewal: {first:?}");
    assert!(*other == Value::Nil || !alive[1], "two owners: {replies:?}");
    assert!(*other == Value::Nil || clock.1 >= cap, "{cap} was not reached at {clock:?}: {replies:?}");
    Said { cap, between: clock, alive: alive[0] }.meets_cap()
}

#[test]
fn a_renewal_in_the_millisecond_of_a_cap_is_too_late() {
    let (_server, mut client) = Server::start().with_client();
    until_they_meet(|| {
        let caps = take(&mut client);
        let meets = |(n, cap): (usize, &i64)| {
            reach(*cap);
            renew(&mut client, n, *cap)
        };
        caps.iter().enumerate().map(meets).filter(|met| *met).count()
    });
}

#[test]
fn a_release_in_the_millisecond_of_a_cap_is_too_late_and_takes_nothing_from_the_next() {
    let (_server, mut client) = Server::start().with_client();
    until_they_meet(|| {
        let counts = |client: &mut Client| ["releases", "caps"].map(|name| counter(client, name));
        let before = counts(&mut client);
        let caps = take(&mut client);
        let (mut met, mut released) = (0, 0);
        for (n, cap) in caps.iter().enumerate() {
            // Half of them come a little earlier.
            reach(cap - n as i64 % 2);
            let release = format!("DLOCK.RELEASE k{n} a");
            let (replies, clock) = between(&mut client, std::slice::from_ref(&release));
            let alive = replies[0] == Value::Int(1);
            met += usize::from(Said { cap: *cap, between: clock, alive }.meets_cap());
            released += i64::from(alive);
            let token = client.int(format!("DLOCK.ACQUIRE k{n} b PX 60000"));
            client.nil(release);
            assert!(client.int(format!("DLOCK.CHECK k{n} {token}")) > 0);
        }
        // Each hold ended in one way.
        let after = counts(&mut client);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [released, HOLDS - released]);
        met
    });
}

#[test]
fn a_failover_in_the_millisecond_of_a_cap_leaves_one_owner() {
    until_they_meet(|| {
        let (primary, replica) = Server::start().with_replica();
        let (mut client, mut copy) = (primary.client(), replica.client());
        let caps = take(&mut client);
        replica.wait_synced(&primary);
        let middle = caps.len() / 2;
        reach(caps[middle]);
        let (_, clock) = between(&mut copy, &["REPLICAOF NO ONE".to_owned()]);
        // Holds whose caps are near come first.
        for n in (middle - 3..caps.len()).chain(0..middle - 3) {
            renew(&mut copy, n, caps[n]);
        }
        caps.iter().filter(|cap| (clock.0..=clock.1).contains(cap)).count()
    });
}
