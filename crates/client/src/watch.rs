//! The holders of a lock, as they change.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::error::Error;
use crate::inspect::{HoldInfo, HoldMode};
use crate::server::Server;
use crate::server::fault::Fault;

/// The holders of a lock, as they change: from [`Client::watch`](crate::Client::watch).
///
/// ```no_run
/// # async fn example(client: dlock_client::Client) -> Result<(), dlock_client::Error> {
/// let mut watch = client.watch("leader")?;
/// while let Some(holders) = watch.next().await {
///     match holders?.first() {
///         Some(leader) => println!("{:?} since {:?}, token {}", leader.owner, leader.since(), leader.token),
///         None => println!("nobody"),
///     }
/// }
/// # Ok(()) }
/// ```
///
/// At most ten holders of a lock are reported. Holders that come and go faster than they are read may be missed, but
/// the last state is not. A lease that ends without a waiter shows when the server removes the key, or at the latest
/// when the time to live that was last seen has passed.
#[derive(Debug)]
pub struct Watch {
    changes: Receiver<Result<Vec<HoldInfo>, Error>>,
    task: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn new(server: Arc<Server>, name: Vec<u8>) -> Self {
        let (to, changes) = channel(CHANGES);
        let observer = Observer { server, name, to, last: None, is_away: false };
        Self { changes, task: tokio::spawn(observer.run()) }
    }

    /// Returns the present holders at first, then those after each change: none if the lock is free.
    ///
    /// An [`Error::Unreachable`] is returned once for each outage, and the watch goes on. Any other error is the last
    /// item. Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<Result<Vec<HoldInfo>, Error>> {
        self.changes.recv().await
    }

    /// Does the same as [`next`](Watch::next), for an implementation of `Stream`.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Vec<HoldInfo>, Error>>> {
        self.changes.poll_recv(context)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task behind a [`Watch`].
struct Observer {
    server: Arc<Server>,
    name: Vec<u8>,
    to: Sender<Result<Vec<HoldInfo>, Error>>,
    /// Owner, mode and token of the holders that were reported last.
    last: Option<Vec<(Vec<u8>, HoldMode, u64)>>,
    /// Whether an outage that has not ended was reported.
    is_away: bool,
}

impl Observer {
    /// Reports every change until nobody listens, or the server refuses.
    async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            let was_away = self.is_away;
            let Err(fault) = self.follow().await else { return };
            if matches!(fault, Fault::Moved(..) | Fault::Ask(_)) {
                continue;
            }
            let is_over = matches!(fault, Fault::Refused(_));
            if is_over || !self.is_away {
                let told = self.to.send(Err(fault.into())).await;
                if is_over || told.is_err() {
                    return;
                }
            }
            pause = if was_away && self.is_away { (pause * 2).min(MAX_PAUSE) } else { PAUSE };
            self.is_away = true;
            sleep(pause).await;
        }
    }

    /// Reports every change as long as a connection is open.
    async fn follow(&mut self) -> Result<(), Fault> {
        let mut observation = self.server.observe(&self.name).await?;
        loop {
            let holds = observation.holds().await?;
            self.is_away = false;
            let seen = holds.iter().map(|hold| (hold.owner.clone(), hold.mode, hold.token)).collect();
            let before = self.last.replace(seen);
            if before != self.last && self.to.send(Ok(holds)).await.is_err() {
                return Ok(());
            }
            observation.changed().await?;
        }
    }
}

/// How many changes may wait to be read.
const CHANGES: usize = 16;

/// The pause between two attempts to reach the server, at first and at most.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);
