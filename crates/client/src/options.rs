//! The terms of an acquisition.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::named;
use crate::owner::{Naming, uuid};
use crate::upgrade::{Upgrade, Upgrades};
use crate::validity::ROUNDING;

/// How the lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Read,
    Write,
    /// Permits of a semaphore.
    Permits {
        limit: u32,
        permits: u32,
    },
    /// All of the names exclusively, or none.
    Together,
}

/// How long to wait in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Not,
    AtMost(Duration),
    ForEver,
}

/// How the lease is kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// By this process, which renews it.
    Renewal,
    /// By the server, while a connection is open.
    Session,
    /// By the server, while a named session is open.
    Named,
    /// By nobody, unless the program renews it.
    Nobody,
}

/// How many replicas must acknowledge a grant or a renewal, and by when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub count: u32,
    pub timeout: Duration,
}

/// The terms of an acquisition. No other acquisition has its owner, so a late or repeated command affects this one
/// only. The exception: to upgrade and downgrade, an owner may have one hold of each mode.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The lock, or the locks that are taken together.
    pub names: Vec<Vec<u8>>,
    pub owner: String,
    pub naming: Naming,
    /// The id of the request, so that a repeat gets the answer of the first copy. Other requests of the owner have
    /// other ids.
    pub request: String,
    pub mode: Mode,
    /// Whether the request asks for the number of its place, with one permit of a semaphore.
    pub wants_slot: bool,
    pub lease: Duration,
    /// How long the lock is held at most, however often it is renewed.
    pub max_hold: Option<Duration>,
    /// How long the lock stays at least, even if it is released earlier.
    pub at_least: Option<Duration>,
    pub keep: Keep,
    /// The named session.
    pub named: Option<Arc<named::Inner>>,
    pub wait: Wait,
    /// How long an outage may take, if the wait has no limit.
    pub outage: Option<Duration>,
    pub replicas: Option<Replicas>,
    /// For an upgrade: the upgrades of the hold that is upgraded.
    pub upgrades: Option<Upgrades>,
    /// The upgrade that has begun.
    pub upgrade: Option<Arc<Upgrade>>,
}

impl Terms {
    pub fn new(names: Vec<Vec<u8>>, mode: Mode, wait: Wait) -> Self {
        Self {
            names,
            owner: String::new(),
            naming: Naming::default(),
            request: String::new(),
            mode,
            wants_slot: false,
            lease: DEFAULT_LEASE,
            max_hold: None,
            at_least: None,
            keep: Keep::Renewal,
            named: None,
            wait,
            outage: None,
            replicas: None,
            upgrades: None,
            upgrade: None,
        }
    }

    /// Begins a request with a new owner, or with a new id for the owner of a hold. No other request is a repeat of it.
    pub fn begin(&mut self) {
        self.owner = self.naming.owner();
        self.request = if let Naming::OfHold(_) = self.naming { uuid() } else { "1".to_owned() };
    }

    /// Returns the first lease: at least `at_least`, so that the lock stays that long even after a crash.
    pub fn first_lease(&self) -> Duration {
        self.at_least.map_or(self.lease, |time| time.max(self.lease))
    }

    /// Returns the lock, or the first of several.
    pub fn name(&self) -> &[u8] {
        self.names.first().map_or(&[], Vec::as_slice)
    }

    /// Fails if the server would refuse the terms, or if they contradict each other.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |why: &str| Err(Error::Invalid(why.to_owned()));
        match self.mode {
            _ if matches!(&self.naming, Naming::Labeled(label) if label.len() > MAX_LABEL) => {
                invalid("the label of an owner has at most 256 bytes")
            }
            // An empty name is more likely a variable that is not set.
            _ if self.names.iter().any(Vec::is_empty) => invalid("the name of a lock is empty"),
            Mode::Permits { limit, permits } if permits == 0 || permits > limit => {
                invalid("permits are 1 to the limit of the semaphore")
            }
            _ if self.at_least.is_some() && matches!(self.keep, Keep::Session | Keep::Named) => {
                invalid("at_least needs a lease: the end of a session frees its locks")
            }
            _ if self.max_hold.is_some_and(|most| self.at_least.is_some_and(|time| time > most)) => {
                invalid("at_least is max_hold at most")
            }
            Mode::Together if self.names.is_empty() || self.names.len() > MAX_NAMES => {
                invalid("1 to 64 locks are acquired together")
            }
            _ => Ok(()),
        }
    }
}

/// Cuts a lease to whole milliseconds, which the client sends and counts on.
pub(crate) fn whole_millis(lease: Duration) -> Result<Duration, Error> {
    if lease < Duration::from_millis(1) || lease > MAX_LEASE {
        return Err(Error::Invalid("a lease is 1 ms to 365 days".to_owned()));
    }
    Ok(lease - Duration::from_nanos(u64::from(lease.subsec_nanos()) % 1_000_000))
}

/// Cuts the lease of a hold to whole milliseconds. Client and server both round, so a lease of 2 ms is never certain.
pub(crate) fn certain_lease(lease: Duration) -> Result<Duration, Error> {
    let lease = whole_millis(lease)?;
    if lease <= ROUNDING {
        return Err(Error::Invalid(format!(
            "a lease of {lease:?} is certain for no moment: it must be longer than 2 ms"
        )));
    }
    Ok(lease)
}

/// Rounds up to whole milliseconds.
pub(crate) fn up_to_millis(time: Duration) -> Duration {
    time + Duration::from_nanos((1_000_000 - u64::from(time.subsec_nanos()) % 1_000_000) % 1_000_000)
}

/// The lease unless set, the same as the server's.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest lease that a server grants.
const MAX_LEASE: Duration = Duration::from_secs(365 * 86400);

/// The longest label. An owner with it is shorter than a server allows.
const MAX_LABEL: usize = 256;

/// The most locks that one request takes.
const MAX_NAMES: usize = 64;
