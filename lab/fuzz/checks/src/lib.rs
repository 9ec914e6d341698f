//! Checks of the codec, the argument parser and the state machine with any bytes.
//!
//! Each check takes the bytes of a fuzzer and panics if its rule does not hold. The targets in `lab/fuzz/targets/` call
//! the checks for libFuzzer; `tests/corpora.rs` plays the corpora in `lab/fuzz/corpus/` without a fuzzer.
//!
//! | check | rule |
//! |---|---|
//! | `codec` | any bytes are read to an error, or to a value that stays the same when it is written and read again |
//! | `args` | arguments are read as a second, plain parser reads them |
//! | `machine` | the engine and its model (`dlock_testkit`) agree on every history |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic is how a check reports what it found"
)]

mod args;
mod codec;
mod machine;

pub use args::args;
pub use codec::codec;
pub use machine::machine;
