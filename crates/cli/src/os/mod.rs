//! Code that runs before `main`, and between `fork` and `exec`. The only unsafe code of the command.

pub mod closed_output;
pub mod parent_death;
