//! Locks for programs without tokio.
//!
//! ```no_run
//! # fn example() -> Result<(), dlock_client::Error> {
//! use std::time::Duration;
//!
//! let client = dlock_client::blocking::Client::open("redis://127.0.0.1")?;
//! let guard = client.lock(|client| client.acquire("job:1").wait(Duration::from_secs(10)))?;
//! // The lock is held and its lease renewed. What it protects gets guard.token().
//! guard.release()?;
//! # Ok(()) }
//! ```
//!
//! A client has one thread of its own, which keeps its locks. The asynchronous client describes what to acquire:
//! everything that it can acquire can be acquired here. Must not be used inside an asynchronous runtime.

use std::future::{Future, IntoFuture};
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cleanup::Cleanups;
use crate::{Acquire, Error};

/// Access to locks, from any thread. Cheap to clone; the clones share their connections and their thread.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    background: Arc<Background>,
}

impl Client {
    /// Does the same as [`crate::Client::open`]. Starts a thread.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the URL cannot be understood, or no thread can be started.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::new(crate::Client::open(url)?)
    }

    /// Wraps an asynchronous client, such as one with more options or one of a quorum. Starts a thread.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if no thread can be started.
    pub fn new(client: crate::Client) -> Result<Self, Error> {
        let background = Background::start(client.cleanups().clone())
            .map_err(|error| Error::Invalid(format!("no thread: {error}")))?;
        Ok(Self { client, background: Arc::new(background) })
    }

    /// Acquires what the asynchronous client describes: `client.lock(|client| client.acquire("job"))`.
    ///
    /// # Errors
    ///
    /// Returns those of the acquisition.
    pub fn lock(&self, what: impl FnOnce(&crate::Client) -> Acquire) -> Result<Guard, Error> {
        let guard = self.block_on(what(&self.client).into_future())?;
        Ok(Guard { guard, background: self.background.clone() })
    }

    /// Waits for anything else that the asynchronous client does: `client.block_on(client.asynchronous().info("job"))`.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.background.handle.block_on(future)
    }

    /// Returns the asynchronous client behind this one.
    pub fn asynchronous(&self) -> &crate::Client {
        &self.client
    }
}

/// A lock that is held, until it is released, dropped or lost. A thread in the background renews it, and releases it
/// when the guard is dropped.
///
/// Has the other methods of [`crate::Guard`], too, such as `token()` and `remaining()`. [`Client::block_on`] waits for
/// those that return a future, such as `extend()`.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    // Declared first, so that it is dropped before the thread that releases it.
    guard: crate::Guard,
    background: Arc<Background>,
}

impl Guard {
    /// Does the same as [`crate::Guard::renew`].
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], [`Error::Unreachable`] if there was no answer, or another error of the server: the lock may
    /// still be held then, see [`remaining`](crate::Guard::remaining).
    pub fn renew(&self) -> Result<(), Error> {
        self.background.handle.block_on(self.guard.renew())
    }

    /// Returns whether the lock may be gone: the server said so, its lease would have ended, or its session broke.
    pub fn is_lost(&self) -> bool {
        self.guard.remaining().is_zero()
    }

    /// Waits until the lock may be gone, as [`crate::Guard::lost`] does: not yet while the connection of a session is
    /// being replaced.
    pub fn wait_until_lost(&self) {
        self.background.handle.block_on(self.guard.lost());
    }

    /// Does the same as [`crate::Guard::enter`].
    ///
    /// # Errors
    ///
    /// Returns those of [`renew`](Guard::renew).
    pub fn enter(&self) -> Result<Self, Error> {
        let guard = self.background.handle.block_on(self.guard.enter())?;
        Ok(Self { guard, background: self.background.clone() })
    }

    /// Does the same as [`crate::Guard::upgrade`], and waits for the grant.
    ///
    /// # Errors
    ///
    /// Returns those of [`crate::Guard::upgrade`] and of the acquisition.
    pub fn upgrade(&self) -> Result<Self, Error> {
        let guard = self.background.handle.block_on(self.guard.upgrade()?.into_future())?;
        Ok(Self { guard, background: self.background.clone() })
    }

    /// Does the same as [`crate::Guard::downgrade`].
    ///
    /// # Errors
    ///
    /// Returns those of [`crate::Guard::downgrade`]. An error drops the guard.
    pub fn downgrade(self) -> Result<Self, Error> {
        let Self { guard, background } = self;
        let guard = background.handle.block_on(guard.downgrade())?;
        Ok(Self { guard, background })
    }

    /// Does the same as [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was not held any more. [`Error::Unreachable`]: no answer; the lease frees the lock.
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, background } = self;
        background.handle.block_on(guard.release())
    }

    /// Does the same as [`crate::Guard::release_after`].
    ///
    /// # Errors
    ///
    /// Returns those of [`crate::Guard::release_after`].
    pub fn release_after(self, time: Duration) -> Result<(), Error> {
        let Self { guard, background } = self;
        background.handle.block_on(guard.release_after(time))
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}

/// The thread of the connections and of the tasks in the background; a call runs on the thread of its caller. Ends
/// after the last client and guard are dropped and their locks released, or [`LAST_RELEASES`] later.
#[derive(Debug)]
struct Background {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    fn start(cleanups: Cleanups) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async {
                let _ = stopped.await;
                // Other tasks may live on: those of the connections, if the program has a clone of the client.
                let _ = timeout(LAST_RELEASES, cleanups.settled()).await;
            });
        };
        let thread = thread::Builder::new().name("dlock".to_owned()).spawn(run)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long the thread waits for the last releases.
const LAST_RELEASES: Duration = Duration::from_secs(5);
