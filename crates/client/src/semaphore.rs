//! Semaphores.

use std::fmt;

use crate::acquire::Acquire;
use crate::backend::Backend;
use crate::options::{Mode, Terms, Wait};

/// A semaphore, from [`Client::semaphore`](crate::Client::semaphore): all programs together hold at most `limit`
/// permits at a time.
///
/// ```no_run
/// # async fn example() -> Result<(), dlock_client::Error> {
/// let client = dlock_client::Client::open("redis://127.0.0.1")?;
/// let downloads = client.semaphore("downloads", 5);
/// let guard = downloads.acquire().await?;
/// // At most five programs are here at the same time.
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// Requests are served strictly in the order in which they came: a large one at the head of the queue holds back
/// smaller ones behind it. The limit belongs to each request. Nothing is created on the server, and nothing is left
/// behind.
///
/// Each acquisition has its own owner, lease and token. A task that waits for more permits while it holds some may wait
/// forever: take all of them with one [`acquire_many`](Semaphore::acquire_many). Not offered over a quorum, whose
/// servers would admit more than the limit.
#[derive(Clone)]
pub struct Semaphore {
    backend: Backend,
    name: Vec<u8>,
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(backend: Backend, name: &[u8], limit: u32) -> Self {
        Self { backend, name: name.to_vec(), limit }
    }

    /// Returns the name of the semaphore, a key on the server.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns how many permits may be held at a time.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes one permit, waiting for as long as it takes.
    pub fn acquire(&self) -> Acquire {
        self.acquire_many(1)
    }

    /// Takes that many permits together, waiting for as long as it takes. They have one guard, lease and token.
    pub fn acquire_many(&self, permits: u32) -> Acquire {
        self.with(permits, Wait::ForEver)
    }

    /// Takes one permit and the number of its place, waiting for as long as it takes: [`Guard::slot`] is the lowest of
    /// 0 to `limit` - 1 that nobody has. For pools of devices and for worker ids. The server needs a module that knows
    /// `SLOT`.
    ///
    /// The number is as safe as the permit. A program that stalls for longer than its lease loses both, and another one
    /// may have the number before it notices: stop using it when the guard is lost.
    ///
    /// [`Guard::slot`]: crate::Guard::slot
    pub fn acquire_slot(&self) -> Acquire {
        let terms = Terms { wants_slot: true, ..self.terms(1, Wait::ForEver) };
        Acquire::new(self.backend.clone(), terms)
    }

    /// Takes one permit if one is free and nobody waits; otherwise the result is
    /// [`Error::Contention`](crate::Error::Contention).
    pub fn try_acquire(&self) -> Acquire {
        self.try_acquire_many(1)
    }

    /// Takes that many permits if they are free and nobody waits; otherwise the result is
    /// [`Error::Contention`](crate::Error::Contention).
    pub fn try_acquire_many(&self, permits: u32) -> Acquire {
        self.with(permits, Wait::Not)
    }

    fn with(&self, permits: u32, wait: Wait) -> Acquire {
        Acquire::new(self.backend.clone(), self.terms(permits, wait))
    }

    fn terms(&self, permits: u32, wait: Wait) -> Terms {
        let mode = Mode::Permits { limit: self.limit, permits };
        Terms::new(vec![self.name.clone()], mode, wait)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        f.debug_struct("Semaphore").field("name", &name).field("limit", &self.limit).finish_non_exhaustive()
    }
}
