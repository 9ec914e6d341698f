//! Calls of the operating system at moments when no safe code can make them. The only unsafe code of the command.

pub mod closed_output;
pub mod parent_death;
