//! Every public type is `Send`, `Sync`, `Unpin`, `Debug` and `'static`.

#![allow(missing_docs, reason = "these are tests")]

use std::collections::BTreeSet;
use std::fmt::Debug;

use dlock_quorum::{
    Acquisition, Answer, Ask, Call, Clocks, Entry, Facts, Floor, Hold, Keeping, Outcome, Patience, Standing, Start,
    Terms, TermsError,
};

fn is_shared_and_printed<T: Send + Sync + Unpin + Debug + 'static>() {}

/// Checks these types, and returns their names.
macro_rules! checked {
    ($($name:ident),+ $(,)?) => {{
        $( is_shared_and_printed::<$name>(); )+
        BTreeSet::from([$( stringify!($name) ),+])
    }};
}

#[test]
fn every_public_type_is_shared_by_threads_and_printed() {
    let checked = checked![
        Acquisition,
        Answer,
        Ask,
        TermsError,
        Call,
        Clocks,
        Entry,
        Facts,
        Floor,
        Hold,
        Keeping,
        Outcome,
        Patience,
        Standing,
        Start,
        Terms,
    ];
    // Every exported type must be in the list above.
    let exported = include_str!("../src/lib.rs").lines().filter_map(|line| line.strip_prefix("pub use "));
    let names = exported.flat_map(|path| path.split(|c: char| !c.is_alphanumeric()));
    let types: BTreeSet<_> = names.filter(|name| name.starts_with(|c: char| c.is_uppercase())).collect();
    assert_eq!(checked, types);
}
