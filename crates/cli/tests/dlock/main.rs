//! The promises of the command `dlock`, as a person uses it: real servers, processes, signals and terminals.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

mod ended;
mod failover;
mod flock;
mod gpus;
mod inherited;
mod limits;
mod manual;
mod monitoring;
mod names;
mod observed;
mod once;
mod outages;
mod output;
mod pages;
mod permissions;
#[path = "../shared/permitted.rs"]
mod permitted;
mod process;
mod production;
mod quorum;
mod readers;
mod resized;
mod run;
#[path = "../shared/scrapes.rs"]
mod scrapes;
mod seen;
mod signals;
mod steps;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod troubleshooting;
mod uninstall;
mod waiting;
