//! A release that is under way, and what it means for the next upgrade.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Server;
use crate::cleanup::Cleanups;
use crate::upgrade::Upgrade;

/// A release without a token that is under way. A copy of it that arrives late might release the reader's next upgrade,
/// which has the same owner. If the release gets no answer, the upgrade that it releases lasts until no copy can come any
/// more, and the next one waits for that.
pub(super) struct Releasing(Option<(Arc<Upgrade>, Cleanups, Handle)>);

impl Releasing {
    /// Begins a release. Must run inside a tokio runtime. `upgrade`: the upgrade whose hold is released.
    pub fn of(server: &Server, upgrade: Option<&Arc<Upgrade>>) -> Self {
        Self(upgrade.map(|upgrade| (upgrade.clone(), server.cleanups.clone(), Handle::current())))
    }

    /// Ends the release. `is_open`: it may still be executed.
    pub fn ended(mut self, is_open: bool) {
        if !is_open {
            self.0 = None;
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some((upgrade, cleanups, runtime)) = self.0.take() {
            upgrade.give_up();
            cleanups.spawn(&runtime, async move {
                sleep(LATEST).await;
                drop(upgrade);
            });
        }
    }
}

/// How late a command may arrive that was sent just before its connection ended.
pub(crate) const LATEST: Duration = Duration::from_secs(1);
