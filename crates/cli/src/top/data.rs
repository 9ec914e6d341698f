//! The answers of the servers to `dlock top`.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_client::{Client, Error, LockInfo, PerServer};

use crate::log::{self, Row};
use crate::output::{moment, shown};
use crate::top::style::Style;

/// A lock's server and name.
pub type Id = (String, Vec<u8>);

/// The answers of the servers.
pub struct Data {
    pub locks: Vec<Lock>,
    /// The servers that did not answer.
    pub missing: Vec<String>,
    /// The newest entries, or why they cannot be read.
    pub log: Result<Vec<Row>, String>,
    pub opened: Option<Opened>,
    /// When the answers came, by the clock of this machine.
    pub clock: String,
    servers: Vec<String>,
}

pub struct Lock {
    server: String,
    pub info: LockInfo,
    /// The addresses of the first holder's session, and of the first waiter.
    addresses: Vec<String>,
}

/// A lock with all its holders and waiters.
pub struct Opened {
    pub id: Id,
    /// `None`: the lock is free, and nobody waits.
    pub info: Option<LockInfo>,
    /// The entries of this lock, or why they cannot be read.
    pub log: Result<Vec<Row>, String>,
}

/// The things that the screen shows besides the list of locks: the servers are asked for each only if it is shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Look {
    pub log: bool,
    pub addresses: bool,
    pub open: Option<Id>,
}

impl Default for Data {
    fn default() -> Self {
        let (locks, missing, servers) = (Vec::new(), Vec::new(), Vec::new());
        Self { locks, missing, log: Ok(Vec::new()), opened: None, clock: String::new(), servers }
    }
}

impl Data {
    /// Asks the servers.
    pub async fn ask(client: &Client, pattern: &[u8], look: &Look) -> Result<Self, Error> {
        // The list shows one holder and one waiter of each lock.
        let mut found = client.survey(pattern, 1).await?;
        if found.answers.is_empty()
            && let Some((_, error)) = found.missing.pop()
        {
            return Err(error);
        }
        // A user who may not read the log still sees the locks.
        let read = async |name: Option<&[u8]>, count| {
            log::newest(client, count, name).await.map_err(|error| error.to_string())
        };
        let log = if look.log { read(None, LOG).await } else { Ok(Vec::new()) };
        let opened = match &look.open {
            None => None,
            Some(id) => {
                Some(Opened { id: id.clone(), info: client.info(&id.1).await?, log: read(Some(&id.1), ALL).await })
            }
        };
        let addresses = if look.addresses { client.addresses().await?.answers } else { Vec::new() };
        let mut data = Self::of(found, addresses.into_iter().collect());
        (data.log, data.opened) = (log, opened);
        Ok(data)
    }

    fn of(found: PerServer<Vec<LockInfo>>, addresses: HashMap<String, HashMap<i64, String>>) -> Self {
        let servers = found.answers.iter().map(|(server, _)| server.clone()).collect();
        let locks = found.answers.into_iter().flat_map(|(server, locks)| {
            let known = addresses.get(&server);
            locks.into_iter().map(move |info| {
                let session = info.holds.first().and_then(|hold| hold.session);
                let ids = session.into_iter().chain(info.queue.first().map(|waiter| waiter.client));
                let addresses = ids.filter_map(|id| known?.get(&id).cloned()).collect();
                Lock { server: server.clone(), info, addresses }
            })
        });
        let locks = locks.collect();
        let missing = found.missing.into_iter().map(|(server, _)| server).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = moment(now).get(CLOCK).unwrap_or_default().to_owned();
        Self { locks, missing, clock, servers, ..Self::default() }
    }

    /// Returns the name of the server, or the number of servers if there are several.
    pub fn servers(&self) -> String {
        match self.servers.as_slice() {
            [server] => server.clone(),
            servers => format!("{} servers", servers.len()),
        }
    }
}

impl Lock {
    pub fn id(&self) -> Id {
        (self.server.clone(), self.info.name.clone())
    }

    /// Returns how long the first request in the queue has waited.
    pub fn wait(&self) -> Option<Duration> {
        self.info.queue.first().map(|waiter| waiter.waiting)
    }

    pub fn style(&self) -> Style {
        match self.wait() {
            None => Style::Plain,
            Some(wait) if wait < LONG => Style::Waited,
            Some(_) => Style::Long,
        }
    }

    /// Returns whether the lock fits all words of the filter. A word is a part of the lock's name or, after `owner:` or
    /// `addr:`, of its first owner or of an address.
    pub fn matches(&self, filter: &str) -> bool {
        filter.split_whitespace().all(|word| match word.split_once(':') {
            Some(("owner", part)) => self.info.holds.iter().any(|hold| shown(&hold.owner).contains(part)),
            Some(("addr", part)) => self.addresses.iter().any(|address| address.contains(part)),
            _ => shown(&self.info.name).contains(word),
        })
    }
}

/// The characters of a moment that are the time of day.
const CLOCK: std::ops::Range<usize> = 11..19;

/// How many entries of the log are read, which is more than a pane shows.
const LOG: u64 = 20;

/// How many entries are read to find those of one lock.
const ALL: u64 = 1000;

/// A lock whose first request waits for at least this long is shown in red.
const LONG: Duration = Duration::from_secs(60);
