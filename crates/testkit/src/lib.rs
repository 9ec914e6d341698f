//! What the tests, the harnesses of `lab/` and the simulations share.
//!
//! | module | what |
//! |---|---|
//! | [`random`] | choices that a seed repeats |

pub mod random;
