//! A week of cron on five machines whose clocks differ, on the engine of the server, with a clock of its own.

use std::time::Duration;

use dlock_core::engine::Settings;
use dlock_core::{BindTo, Lease, LeaseChoice, Owner, Renew, RenewToken, Request, Token, Want};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace};
use dlock_testkit::memory_server::{Entry, MemoryServer};
use dlock_testkit::random::Random;

use super::kept;

const DAY: u64 = 86_400_000;
const MINUTE: u64 = 60_000;
const MACHINES: u64 = 5;
/// A Monday, 03:00 by a clock that is right.
const BEGIN: u64 = 1_795_402_800_000;

/// The conditions of seven days.
struct Week {
    /// How far the fastest and the slowest clock are off, in milliseconds.
    skew: u64,
    /// How long the command takes, in milliseconds.
    takes: u64,
    /// How many milliseconds each day is longer than 24 hours (summer time ends) or shorter.
    days: [i64; 7],
}

const PLAIN: Week = Week { skew: 90_000, takes: 1000, days: [0; 7] };

/// Starts `dlock run --once 1d` on every machine at 03:00 of its own clock, and returns how many of them ran the
/// command on each day. The lock stays for `stays` after the grant.
fn runs(week: &Week, stays: Duration, seed: u64) -> [u32; 7] {
    let mut random = Random::seeded(seed);
    let mut server = MemoryServer::new(settings(), MemoryKeyspace::at(BEGIN - DAY));
    let key: KeyName = (0, b"report".to_vec());
    let (mut runs, mut begin, mut due) = ([0; 7], BEGIN, Vec::new());
    let mut running: Option<(u64, Owner, Token)> = None;
    for (day, longer) in week.days.iter().enumerate() {
        // Clocks are set now and then: a machine that was late yesterday is early today. A start takes a moment.
        let start = |random: &mut Random| begin - week.skew + random.below(2 * week.skew + 1) + random.below(5000);
        let (first, last) = (begin - week.skew, begin + week.skew + 5000);
        let starts: Vec<u64> = match random.below(4) {
            // Only the machine whose clock is the fastest or the slowest is up.
            0 => vec![first],
            1 => vec![last],
            _ => (2..MACHINES).map(|_| start(&mut random)).chain([first, last]).collect(),
        };
        due.extend(starts.into_iter().map(|start| (start, day)));
        begin = begin.checked_add_signed(DAY as i64 + longer).expect("a time");
    }
    due.sort_unstable();
    for (number, (start, day)) in due.into_iter().enumerate() {
        if let Some((end, owner, token)) = running.take_if(|(end, ..)| *end <= start) {
            server.space.set_now_us(end * 1000);
            // `dlock run` renews a short lease while the command runs. Here the first lease is as long as the lock stays:
            // to the other machines, the lock is held all the same.
            let left = (stays.as_millis() as u64).saturating_sub(week.takes).max(1);
            renew(&mut server, &key, &owner, token, left);
        }
        server.space.set_now_us(start * 1000);
        let owner = Owner::new(format!("machine:{number}").as_bytes()).expect("an owner");
        let lease = stays.max(LEASE).as_millis() as u64;
        if let Some(token) = acquire(&mut server, &key, &owner, lease) {
            runs[day] += 1;
            running = Some((start + week.takes, owner, token));
        }
    }
    runs
}

fn acquire(server: &mut MemoryServer, key: &KeyName, owner: &Owner, lease: u64) -> Option<Token> {
    let lease = LeaseChoice::For(Lease::new(lease).expect("a lease"));
    let request = Request::new(owner.clone(), Want::ExclusiveOnce, lease);
    match server.enter(1, std::slice::from_ref(key), false, &request, None).expect("no fault") {
        Entry::Granted(grant) => Some(grant.token),
        Entry::Refused => None,
        other => panic!("{other:?}"),
    }
}

fn renew(server: &mut MemoryServer, key: &KeyName, owner: &Owner, token: Token, left: u64) {
    let lease = LeaseChoice::For(Lease::new(left).expect("a lease"));
    let renew = Renew { owner, mode: None, lease, token: RenewToken::Is(token) };
    assert!(server.renew(1, key, &renew, BindTo::Nothing).expect("no fault").is_some(), "the owner holds the lock");
}

fn settings() -> Settings {
    Settings::new(Lease::new(30_000).expect("a lease"))
}

const LEASE: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_millis(DAY);

#[test]
fn five_machines_whose_clocks_are_up_to_90_s_off_run_the_command_once_each_day() {
    for seed in 0..2000 {
        assert_eq!(runs(&PLAIN, kept(PERIOD), seed), [1; 7], "seed {seed}");
    }
}

#[test]
fn days_of_23_or_25_hours_clocks_an_hour_apart_and_long_commands_still_give_one_run_each_day() {
    let hour = 60 * MINUTE as i64;
    for seed in 0..500 {
        for days in [[0, 0, -hour, 0, 0, 0, 0], [0, 0, hour, 0, 0, 0, 0]] {
            for takes in [1, 1000, 3 * 60 * MINUTE] {
                for skew in [0, 90_000, 30 * MINUTE] {
                    assert_eq!(runs(&Week { skew, days, takes }, kept(PERIOD), seed), [1; 7], "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn a_lock_that_stays_for_the_whole_period_skips_days_and_one_that_stays_too_briefly_allows_several_runs() {
    let count = |stays: Duration, seed| runs(&PLAIN, stays, seed).iter().sum::<u32>();
    assert!(
        (0..20).any(|seed| count(PERIOD, seed) < 7),
        "no day is skipped, although its first start is less than a period after the last run"
    );
    assert!(
        (0..20).any(|seed| count(LEASE, seed) > 7),
        "no day has several runs, although the lock stays for a lease only"
    );
    let is_short = |time: u64, seed| runs(&PLAIN, Duration::from_millis(time), seed) != [1; 7];
    let stays = 2 * PLAIN.skew - 1000;
    assert!(
        (0..20).any(|seed| is_short(stays, seed)),
        "each day has one run, although clocks differ by more than the lock stays"
    );
}
