//! Clients and machines that do their worst: the server stands, others are served, and nothing is left behind.

mod connections;
mod disk;
mod loading;
mod masses;
mod megabytes;
mod output;
mod policies;
mod stalls;
