//! Which steps a history of a waiting line has and how they are drawn.

use dlock_core::{Entries, Mode, Reentry};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::history::{Lease, Who};

/// One thing that happens to a lock and its line.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time goes on, and nobody looks at the lock yet.
    Wait(u64),
    /// The server looks whose turn it is.
    Look,
    Ask(Ask),
    /// The last request that had an id comes again; whether it can wait.
    AskAgain(Patience),
    Release(Who, Option<Mode>, Entries),
    Renew(Who, u64),
    /// The end of a session, with a grace or without.
    SessionEnds(Who, Mode, Option<u64>),
    /// A waiter gives up: this one, counted from the head.
    Leave(usize),
    Delete,
}

/// A request to enter, and what it does if it cannot.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub owner: Who,
    pub mode: Mode,
    pub reentry: Reentry,
    pub lease: Lease,
    /// With an id, which no request before had.
    pub has_id: bool,
    pub patience: Patience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    None,
    Block,
}

/// A history of owners that wait for each other.
pub fn history() -> impl Strategy<Value = Vec<Event>> {
    prop_oneof![vec(event(3), 1..60), vec(event(8), 1..120)]
}

fn event(owners: Who) -> impl Strategy<Value = Event> {
    let mode = || prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)];
    let entries = prop_oneof![1 => Just(Entries::One), 2 => Just(Entries::All)];
    let renewal = (0..owners, 1..80_u64).prop_map(|(who, lease)| Event::Renew(who, lease));
    let end = (0..owners, mode(), option::of(1..40_u64));
    prop_oneof![
        12 => ask(owners).prop_map(Event::Ask),
        2 => patience().prop_map(Event::AskAgain),
        8 => (0..owners, option::of(mode()), entries).prop_map(|(who, mode, entries)| Event::Release(who, mode, entries)),
        3 => (1..40_u64).prop_map(Event::Wait),
        2 => Just(Event::Look),
        1 => renewal,
        1 => end.prop_map(|(who, mode, grace)| Event::SessionEnds(who, mode, grace)),
        2 => (0..8_usize).prop_map(Event::Leave),
        1 => Just(Event::Delete),
    ]
}

fn ask(owners: Who) -> impl Strategy<Value = Ask> {
    let how = prop_oneof![
        2 => Just((Mode::Exclusive, Reentry::Count)),
        1 => Just((Mode::Exclusive, Reentry::Refuse)),
        4 => Just((Mode::Shared, Reentry::Count)),
    ];
    let lease = prop_oneof![
        2 => Just(Lease::Own),
        6 => (1..80_u64).prop_map(Lease::For),
        1 => (-2..60_i64).prop_map(Lease::Until),
    ];
    (0..owners, how, lease, any::<bool>(), patience()).prop_map(|(owner, (mode, reentry), lease, has_id, patience)| {
        Ask { owner, mode, reentry, lease, has_id, patience }
    })
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![1 => Just(Patience::None), 4 => Just(Patience::Block)]
}
