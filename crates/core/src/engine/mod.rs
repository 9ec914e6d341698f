//! The engine: the state of a server beside its keys (waiters, sessions, and when which lock is due), and all decisions
//! on what commands, timers and lost connections do to locks.
//!
//! An [`Engine`] is a state machine. Its inputs are requests ([`Engine::acquire`], [`Engine::release`], …), events
//! ([`Input`]) and the time ([`Engine::tick`]). It reaches locks through a [`Keyspace`], changes them by effects only,
//! and hands out the rest as data: what the caller has to send ([`Output`]), and when it wants to run next
//! ([`Engine::wake_at`]).
//!
//! # Implementation details
//! A lock that has waiters, or holds that are bound to sessions, has a *record*. A lock without either has none: a
//! command on it needs one lookup, however many other locks have records. The `Registry` finds records by name,
//! `Waiters` the requests that wait, `Sessions` the locks of a session, and the `Backlog` what is due.
//!
//! A *visit* is one open lock with its record. It does what is due there, always in this order: release the holds of
//! ended sessions, serve the queue, close. Another visit extends leases. A command does what is due before its own
//! work.

mod inputs;
mod keyspace;
mod state;
mod visit;

pub use crate::settings::{LogSettings, Settings};
pub use inputs::events::Input;
pub use inputs::inspect::{Detail, Inspection, ShownHold, ShownSession, ShownWaiter};
pub use inputs::join::Entered;
pub use inputs::named_session::{BoundHold, BoundHolds, Heartbeat, OpenIf};
pub use inputs::release::{Left, replay_release};
#[cfg(feature = "check")]
pub use inputs::snapshot::{RecordView, Snapshot, WaiterView};
pub use inputs::tick::Role;
pub use keyspace::{
    GRACE_MS, KeyEnd, Keyspace, NotOpen, OpenKey, OpenLock, Permission, Replication, Signal, UserState, WrongType,
    replay,
};
pub use state::call::Call;
pub use state::engine::Engine;
pub use state::fault::Fault;
pub use state::ids::WaiterId;
pub use state::load::{BYTES_A_RENEWAL, MAX_RENEWALS};
pub use state::outbox::grant::{Grant, SlotAnswer};
pub use state::outbox::histogram::Histogram;
pub use state::outbox::log::{Log, Lost};
pub use state::outbox::log_entry::{CUT, LogEntry, LogEvent, Peer};
pub use state::outbox::stats::{Gauges, Stats};
pub use state::outbox::{Answer, Event, Output};
pub use state::records::record::MAX_RECORDED_KEY;
#[cfg(feature = "check")]
pub use state::records::session_holds::views::BindingView;
pub use state::sessions::named::OpenSession;
