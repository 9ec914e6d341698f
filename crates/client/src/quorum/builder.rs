//! The servers and settings of a quorum.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_quorum::Keeping;

use super::Quorum;
use super::clocks::ServerClocks;
use super::contended::Contended;
use super::member::Member;
use crate::backend::Backend;
use crate::cleanup::Cleanups;
use crate::client::Client;
use crate::error::Error;
use crate::profile::Place;
use crate::profile::Tls;
use crate::quorum::last_answers::LastAnswers;

/// A quorum to be opened, from [`Client::quorum`].
#[derive(Clone)]
#[must_use = "nothing happens until it is opened"]
pub struct QuorumBuilder {
    urls: Vec<String>,
    longest_lease: Duration,
    timeout: Duration,
    keeping: Keeping,
    tls: Option<Tls>,
}

impl QuorumBuilder {
    pub(crate) fn new(urls: Vec<String>, longest_lease: Duration) -> Self {
        Self { urls, longest_lease, timeout: TIMEOUT, keeping: Keeping::InMemory, tls: None }
    }

    /// Sets how long a server has to answer before the others have to do without it: 100 ms unless set. At most a
    /// quarter of the lease.
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Declares that all servers keep their locks on disk: `appendonly yes` and `appendfsync always`. Then they count
    /// as soon as they are up. A server without AOF is refused; the client cannot check `appendfsync`.
    pub fn persistent(mut self) -> Self {
        self.keeping = Keeping::OnDisk;
        self
    }

    /// Connects to all servers over TLS, with these certificates.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Returns the client, which connects when it is first needed.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a URL cannot be understood or names more than one server, a time makes no sense, or a
    /// certificate or the key cannot be read.
    pub fn open(self) -> Result<Client, Error> {
        let Self { urls, longest_lease, timeout, keeping, tls } = self;
        if urls.is_empty() {
            return Err(Error::Invalid("a quorum needs servers".to_owned()));
        }
        if timeout.is_zero() || timeout > longest_lease / 4 {
            return Err(Error::Invalid("a server's timeout is over 0 and at most a quarter of the lease".to_owned()));
        }
        let place = |url: &String| match &tls {
            Some(tls) => Place::parse(url)?.secured(tls, true),
            None => Place::parse(url),
        };
        let began = Instant::now();
        let clocks = Arc::new(ServerClocks::new(began, urls.len(), timeout));
        let member = |(at, url): (usize, &String)| match place(url)? {
            Place::Nodes(nodes) => match <[_; 1]>::try_from(nodes) {
                Ok([info]) => Ok(Member::new(at, info, clocks.clone(), keeping, longest_lease, timeout)),
                Err(_) => Err(Error::Invalid("each URL of a quorum names one server".to_owned())),
            },
            Place::Sentinels { .. } => Err(Error::Invalid("the servers of a quorum are not Sentinel's".to_owned())),
        };
        let members = urls.iter().enumerate().map(member).collect::<Result<Vec<_>, _>>()?;
        let silent = Mutex::new(vec![false; members.len()]);
        let (contended, answers, cleanups) =
            (Contended::new(began), LastAnswers::new(members.len()), Cleanups::default());
        let quorum = Quorum { members, longest_lease, timeout, began, clocks, contended, silent, answers, cleanups };
        Ok(Client::of(Backend::Quorum(Arc::new(quorum))))
    }
}

impl Quorum {
    /// Returns the addresses of the servers, without logins.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(Member::address).collect()
    }
}

/// Shows no URLs, which may have passwords.
impl fmt::Debug for QuorumBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("QuorumBuilder");
        shown.field("servers", &self.urls.len()).field("longest_lease", &self.longest_lease);
        shown.field("timeout", &self.timeout).field("keeping", &self.keeping).finish_non_exhaustive()
    }
}

/// How long a server has to answer, unless set.
const TIMEOUT: Duration = Duration::from_millis(100);
