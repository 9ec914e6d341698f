//! Clients and machines that do their worst: the server goes on, other clients are served, and nothing is left behind.

mod caps_that_meet;
mod connections;
mod disk;
mod ends_that_meet;
mod loading;
mod long_turns;
mod masses;
mod megabytes;
mod output;
mod policies;
mod stalls;
mod starvation;
mod turns_of_named_sessions;
