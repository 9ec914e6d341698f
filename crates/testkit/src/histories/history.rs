//! Which steps a history has and how they are drawn.

use std::ops::Range;

use dlock_core::{Entries, Mode, Reentry, Waiters};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// One thing that happens to a lock.
#[derive(Clone, Debug)]
pub enum Step {
    /// Time goes on, so many ms.
    Wait(u64),
    /// The server's clock jumps back, so many ms.
    ClockBack(u64),
    Acquire {
        owner: Who,
        mode: Mode,
        reentry: Reentry,
        lease: Lease,
        request: Option<Id>,
    },
    Release {
        owner: Somebody,
        mode: Option<Mode>,
        entries: Entries,
        token: Option<TokenPick>,
        request: Option<Id>,
    },
    Renew {
        owner: Somebody,
        mode: Option<Mode>,
        lease: Lease,
        token: TokenRule,
    },
    /// `PEXPIRE`, so many ms from now.
    Expire(u64),
    Persist,
    /// A client that did not get the answer to its last request with an id sends it again.
    Resend,
    /// The server notices that the key's time to live has passed, if it has.
    KeyEnds,
    Delete,
    /// From now on somebody waits, or nobody.
    Waiters(Waiters),
    /// The time to live is put back, as after `PERSIST`.
    Sweep,
    /// The primary saves and loads its locks.
    Reload,
    /// The replica gets the whole lock anew.
    Resync,
}

/// The id of a request: few, so that they meet.
pub type Id = u8;

/// The number of an owner.
pub type Who = usize;

/// Who releases or renews: found when the history is played, so that most have something to release.
#[derive(Clone, Copy, Debug)]
pub enum Somebody {
    /// The owner of some stored hold.
    Holder(usize),
    /// Anybody.
    Any(Who),
}

#[derive(Clone, Copy, Debug)]
pub enum Lease {
    Own,
    For(u64),
    /// Until so many ms from now, which may be in the past.
    Until(i64),
}

/// What a renewal says of the token.
#[derive(Clone, Debug)]
pub enum TokenRule {
    Any,
    Is(TokenPick),
    /// At least the picked token and so much more.
    AtLeast(TokenPick, u64),
}

/// Which token a command names: found when the history is played.
#[derive(Clone, Copy, Debug)]
pub enum TokenPick {
    /// The one of the owner's own hold in this mode, if there is one.
    Mine(Mode),
    /// The one of some stored hold.
    Of(usize),
    /// One that no hold ever had.
    Never,
}

/// A history of a few owners who get in each other's way, or of a crowd of readers.
pub fn history() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        3 => vec(step(Scene { owners: 0..3, readers: 3, longest: 60, pause: 20 }), 1..80),
        1 => vec(step(Scene { owners: 0..OWNERS, readers: 30, longest: 900, pause: 6 }), 1..200),
    ]
}

/// How many owners there are.
pub const OWNERS: usize = 40;

#[derive(Clone)]
struct Scene {
    owners: Range<Who>,
    /// How many requests are by readers, against 4 by writers.
    readers: u32,
    longest: u64,
    pause: u64,
}

fn step(scene: Scene) -> impl Strategy<Value = Step> {
    let Scene { owners, readers, longest, pause } = scene;
    let enters = acquire(owners.clone(), readers, longest);
    let leaves = (
        somebody(owners.clone()),
        option::weighted(0.3, mode()),
        entries(),
        option::weighted(0.3, token_pick()),
        request(),
    )
        .prop_map(|(owner, mode, entries, token, request)| Step::Release { owner, mode, entries, token, request });
    let renews = (somebody(owners), option::weighted(0.3, mode()), lease(longest), token_rule())
        .prop_map(|(owner, mode, lease, token)| Step::Renew { owner, mode, lease, token });
    prop_oneof![
        (8 + readers) => enters,
        8 => leaves,
        6 => renews,
        8 => (1..=pause).prop_map(Step::Wait),
        1 => (1..=pause).prop_map(Step::ClockBack),
        1 => (1..=longest * 2).prop_map(Step::Expire),
        1 => Just(Step::Persist),
        2 => Just(Step::KeyEnds),
        4 => Just(Step::Resend),
        1 => Just(Step::Sweep),
        1 => prop_oneof![Just(Step::Waiters(Waiters::None)), Just(Step::Waiters(Waiters::Some))],
        1 => prop_oneof![8 => Just(Step::Reload), 8 => Just(Step::Resync), 1 => Just(Step::Delete)],
    ]
}

fn acquire(owners: Range<Who>, readers: u32, longest: u64) -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        2 => Just((Mode::Exclusive, Reentry::Count)),
        2 => Just((Mode::Exclusive, Reentry::Refuse)),
        readers => Just((Mode::Shared, Reentry::Count)),
    ];
    (owners, how, lease(longest), request()).prop_map(|(owner, (mode, reentry), lease, request)| Step::Acquire {
        owner,
        mode,
        reentry,
        lease,
        request,
    })
}

fn request() -> impl Strategy<Value = Option<Id>> {
    option::weighted(0.5, 0..3_u8)
}

fn somebody(owners: Range<Who>) -> impl Strategy<Value = Somebody> {
    prop_oneof![3 => (0..OWNERS).prop_map(Somebody::Holder), 1 => owners.prop_map(Somebody::Any)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}

fn entries() -> impl Strategy<Value = Entries> {
    prop_oneof![4 => Just(Entries::One), 1 => Just(Entries::All)]
}

fn lease(longest: u64) -> impl Strategy<Value = Lease> {
    let until = -3..=i64::try_from(longest).expect("a small number");
    prop_oneof![2 => Just(Lease::Own), 4 => (1..=longest).prop_map(Lease::For), 1 => until.prop_map(Lease::Until)]
}

fn token_pick() -> impl Strategy<Value = TokenPick> {
    prop_oneof![4 => mode().prop_map(TokenPick::Mine), 2 => (0..OWNERS).prop_map(TokenPick::Of), 1 => Just(TokenPick::Never)]
}

fn token_rule() -> impl Strategy<Value = TokenRule> {
    prop_oneof![
        4 => Just(TokenRule::Any),
        2 => token_pick().prop_map(TokenRule::Is),
        3 => (token_pick(), prop_oneof![2 => Just(0), 1 => 1..2_000_u64]).prop_map(|(pick, more)| TokenRule::AtLeast(pick, more)),
    ]
}
