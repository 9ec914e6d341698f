//! A client's, a replica's and an operator's view of dlock, on real servers. One file for each subject; the name
//! of a test is the promise.
//!
//! `DLOCK_SERVER` names the server (default: `redis-server` on the path), `DLOCK_MODULE` and `DLOCK_MODULE_HOOKS`
//! the module and its debug build, with the hooks for tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

mod acl;
mod bad_input;
mod calls;
mod caps;
mod catalog;
mod clients;
mod cluster;
mod commands;
mod config;
mod damaged;
mod deploy;
mod docs;
mod effects;
mod expiry;
mod failures;
mod fixture;
mod hostile;
mod info;
mod keys;
mod leases;
mod load;
mod log;
mod log_command;
mod memory;
mod messages;
mod modes;
mod named_sessions;
mod named_sessions_failures;
mod named_sessions_users;
mod observe;
mod options;
mod panic_guard;
mod persistence;
mod refusals;
mod release;
mod renew;
mod replication;
mod requests;
mod requests_elsewhere;
mod requests_kept;
mod requests_waiting;
mod semaphores;
mod semaphores_arguments;
mod semaphores_kept;
mod semaphores_races;
mod semaphores_slots;
mod semaphores_waiting;
mod sessions;
mod sessions_binding;
mod sessions_ended;
mod sessions_failures;
mod sessions_leases;
mod sessions_waiting;
mod several;
mod several_cluster;
mod several_costs;
mod several_kept;
mod several_liveness;
mod several_requests;
mod several_waiting;
mod threads;
mod tokens;
mod topology;
mod upgrade;
mod waiting;

use dlock_testkit as support;
