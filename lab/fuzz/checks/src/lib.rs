//! The rules for the codec, the argument parser and the state machine, whatever the bytes.
//!
//! Each check takes the bytes of a fuzzer and panics if something does not hold. `lab/fuzz/targets/` has them run by
//! libFuzzer; `tests/corpora.rs` plays the kept corpora without it.
//!
//! | file | knows |
//! |---|---|
//! | `codec` | that bytes are read to an error, or to a value that stays the same if it is written and read |
//! | `args` | that arguments are read as a second, plain parser reads them |
//! | `machine` | that the engine and its model agree on every history |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a check that panics has found something, which is what it is for"
)]

mod args;
mod codec;
mod machine;

pub use args::args;
pub use codec::codec;
pub use machine::machine;
