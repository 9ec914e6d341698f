//! Compares the sums and lists of large locks with a look at each hold.

use foldhash::fast::FixedState;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::engine::state::records::session_holds::{Renewal, SessionEnd};
use crate::{Bond, Change, Effect, Expiry, Extras, Lease, Memory};

/// Shared holds of one lock. Their owners are numbered in this order.
#[derive(Clone, Debug)]
struct Crowd {
    /// The clock of an effect before the first hold: a later one, if the clock was set back then.
    first_sweep: Option<u64>,
    holds: Vec<Reader>,
    /// An exclusive hold of the owner of this reader, bound to the session of that reader.
    writer: Option<usize>,
    /// When sessions end, by the number of the session.
    ends: Vec<(u64, SessionEnd)>,
    /// The clock of an effect after the ends.
    sweep: Option<u64>,
    /// How many holds a visit settles before the effect.
    settled: usize,
    key_end: UnixMs,
}

#[derive(Clone, Debug)]
struct Reader {
    /// How much higher the token is than the one before; 0: the same.
    step: u64,
    deadline: u64,
    count: u32,
    session: Option<u64>,
    /// How much later than the deadline the cap is.
    cap: Option<u64>,
}

/// The promises on the sums that a look at each hold gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    Exact,
    /// Too high, perhaps.
    AtLeast,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The crowds have live, lapsed and dropped holds, those of sessions that have ended with and without a grace, and
    /// sessions with many holds.
    #[test]
    fn a_large_lock_shows_what_a_look_at_each_hold_does(crowd in crowd(Just(None).boxed())) {
        // An effect may have dropped some of the holds whose leases have run out within a grace.
        let has_effect = crowd.sweep.is_some() || crowd.settled > 0;
        let has_grace = |session| crowd.ends.iter().any(|(ended, end)| Some(*ended) == session && end.grace.is_some());
        let may_be_dropped = |reader: &Reader| reader.deadline <= LAST_END && has_grace(reader.session);
        let sums = if has_effect && crowd.holds.iter().any(may_be_dropped) { Sums::AtLeast } else { Sums::Exact };
        compare(&crowd, sums);
    }

    /// The sums leave out caps that come before the end of a grace. The list of holds does not.
    #[test]
    fn a_large_lock_of_capped_holds_shows_the_right_holds(crowd in crowd(option::of(0..LAST_MS).boxed())) {
        compare(&crowd, Sums::AtLeast);
    }
}

fn compare(crowd: &Crowd, sums: Sums) {
    let (lock, bound) = crowd.lock_and_bindings();
    let sessions = Sessions::new(FixedState::with_seed(1), 1);
    // The time only goes on, so that what is remembered of an earlier look is used.
    for now in (LAST_END..=LAST_MS + 2).map(UnixMs::new) {
        let view = View { lock: &lock, bound: Some(&bound), sessions: &sessions, key_end: crowd.key_end, now, few: 0 };
        let each: Vec<(&Hold, UnixMs)> =
            lock.stored_in_no_order().filter_map(|hold| Some((hold, view.end_of(hold)?))).collect();
        let wanted = Summary::of(each.iter().map(|(hold, _)| *hold));
        let last = each.iter().map(|(_, end)| *end).max().unwrap_or(now);

        let shown = view.shown();
        let (found, end) = view.summary(shown.as_deref());
        assert_eq!((found.mode, found.token), (wanted.mode, wanted.token), "at {now:?}");
        match sums {
            Sums::Exact => assert_eq!((found.holders, found.entries, end), (wanted.holders, wanted.entries, last)),
            Sums::AtLeast => {
                assert!(found.holders >= wanted.holders && found.entries >= wanted.entries && end >= last);
                assert!(end <= crowd.key_end.max(now) && found.holders <= bound.len() as u64 + lock.stored() as u64);
            }
        }
        if wanted.mode == LockMode::Free {
            continue;
        }
        for most in [1, 10, 1000] {
            let holds = view.holds(shown.as_deref(), most);
            let mut tokens: Vec<Token> = each.iter().map(|(hold, _)| hold.token).collect();
            tokens.sort_unstable();
            tokens.truncate(most);
            assert!(holds.iter().map(|shown| shown.hold.token).eq(tokens), "{most} at {now:?}");
            for shown in &holds {
                let (_, end) = each.iter().find(|(hold, _)| **hold == shown.hold).expect("it is held");
                assert_eq!(shown.ttl, end.since(now));
            }
        }
    }
}

impl Crowd {
    fn lock_and_bindings(&self) -> (Lock, SessionHolds) {
        let (mut lock, mut bound, mut memory) = (Lock::default(), SessionHolds::default(), Memory::new());
        let mut apply = |lock: &mut Lock, bound: &mut SessionHolds, clock, change| {
            bound.sweep(clock);
            lock.apply(Effect { clock, change }, &mut memory);
        };
        let put = |hold| Change::Put { hold, expiry: Expiry::Keep };
        let mut bind = |lock: &mut Lock, bound: &mut SessionHolds, hold: Hold, session: Option<u64>| {
            apply(lock, bound, UnixMs::ZERO, put(hold.clone()));
            if let Some(session) = session {
                bound.bind(&hold, key(session), Renewal { at: UnixMs::MAX, load: 1 });
            }
        };
        if let Some(clock) = self.first_sweep {
            bound.sweep(UnixMs::new(clock));
        }
        let mut token = 0;
        for (number, reader) in self.holds.iter().enumerate() {
            token += reader.step;
            if self.writer.is_none_or(|writer| writer == number) {
                bind(&mut lock, &mut bound, reader.hold(number, token, Mode::Shared), reader.session);
            }
            if self.writer == Some(number) {
                bind(&mut lock, &mut bound, reader.hold(number, token + 1, Mode::Exclusive), reader.session);
            }
        }
        for (session, end) in &self.ends {
            bound.end(key(*session), *end);
        }
        for _ in 0..self.settled {
            let Some((_, binding, end)) = bound.next_ended().map(|(id, binding, end)| (id, binding.clone(), end))
            else {
                break;
            };
            bound.unbind(&binding.owner, binding.mode);
            let Some(hold) = lock.live(&binding.owner, binding.mode, end.at).cloned() else { continue };
            let change = match end.grace {
                Some(_) => put(Hold { deadline: hold.up_to_cap(end.deadline()), ..hold }),
                None => Change::Remove { owner: binding.owner, mode: Some(binding.mode) },
            };
            apply(&mut lock, &mut bound, end.at, change);
        }
        if let Some(clock) = self.sweep {
            apply(&mut lock, &mut bound, UnixMs::new(clock), Change::Sweep);
        }
        (lock, bound)
    }
}

impl Reader {
    fn hold(&self, number: usize, token: u64, mode: Mode) -> Hold {
        Hold {
            owner: Owner::from_uuid((number as u128).to_be_bytes()),
            mode,
            count: self.count,
            lease: Lease::MAX,
            deadline: UnixMs::new(self.deadline),
            token: Token::new(token + 1).expect("a token"),
            extras: Extras::of(None, self.cap.map(|later| UnixMs::new(self.deadline + later)), None),
            bond: Bond::NONE,
        }
    }
}

fn key(session: u64) -> SessionKey {
    SessionKey::Connection(ClientId(session))
}

fn crowd(cap: BoxedStrategy<Option<u64>>) -> impl Strategy<Value = Crowd> {
    // Few deadlines: many of the holds have the same one. Session 0 has more holds than others.
    let session = prop_oneof![2 => Just(None), 3 => Just(Some(0)), 2 => (1..SESSIONS).prop_map(Some)];
    let reader = (prop_oneof![1 => Just(0_u64), 9 => 1..4_u64], 1..LAST_MS, 1..4_u32, session, cap)
        .prop_map(|(step, deadline, count, session, cap)| Reader { step, deadline, count, session, cap });
    let grace = option::of((1..LAST_MS).prop_map(|ms| Lease::new(ms).expect("a lease")));
    let end = (0..SESSIONS, 0..=LAST_END, grace)
        .prop_map(|(session, at, grace)| (session, SessionEnd { at: UnixMs::new(at), grace }));
    let settled = prop_oneof![2 => Just(0), 1 => 1..40_usize];
    let key_end = prop_oneof![4 => Just(UnixMs::MAX), 1 => (LAST_END..LAST_MS).prop_map(UnixMs::new)];
    let holds = prop_oneof![3 => vec(reader.clone(), 1..60), 1 => vec(reader, 200..400)];
    let first_sweep = option::weighted(0.2, 0..=LAST_MS);
    let sweep = option::weighted(0.3, 0..=LAST_END);
    let writer = option::weighted(0.1, 0..60_usize);
    (first_sweep, holds, writer, vec(end, 0..8), sweep, settled, key_end).prop_map(
        |(first_sweep, holds, writer, ends, sweep, settled, key_end)| {
            let writer = writer.filter(|writer| *writer < holds.len());
            Crowd { first_sweep, holds, writer, ends, sweep, settled, key_end }
        },
    )
}

const SESSIONS: u64 = 12;
const LAST_MS: u64 = 24;
/// No session ends later.
const LAST_END: u64 = 8;
