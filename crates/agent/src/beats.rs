//! Commands of sessions that the server may execute late.
//!
//! A heartbeat without an answer is sent again, and its first copy may arrive after a later command: it would set its
//! time once more, or open the session again. For this reason, a command with another effect on the same session waits
//! until no copy can come any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

/// The commands that may be executed, by the id of their session.
#[derive(Default)]
pub(crate) struct Beats(Mutex<HashMap<Vec<u8>, Known>>);

/// Commands with the same effect on a session.
struct Known {
    effect: Vec<u8>,
    count: usize,
}

/// A command of a session, until it is dropped.
pub(crate) struct Beat {
    entry: Option<Entry>,
    /// Whether a copy of it may be executed after it is dropped.
    pub is_open: bool,
}

struct Entry {
    all: Arc<Beats>,
    id: Vec<u8>,
}

impl Beats {
    /// Adds a command as soon as none with another effect on this session may be executed.
    pub async fn enter(self: &Arc<Self>, id: &[u8], effect: &[u8]) -> Beat {
        while !self.add(id, effect) {
            sleep(LOOK).await;
        }
        Beat { entry: Some(Entry { all: self.clone(), id: id.to_vec() }), is_open: true }
    }

    fn add(&self, id: &[u8], effect: &[u8]) -> bool {
        let mut known = self.known();
        let known = known.entry(id.to_vec()).or_insert_with(|| Known { effect: effect.to_vec(), count: 0 });
        let is_same = known.effect == effect;
        known.count += usize::from(is_same);
        is_same
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        let entry = self.entry.take();
        if self.is_open
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                sleep(LATEST).await;
                drop(entry);
            });
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut known = self.all.known();
        if let Some(entry) = known.get_mut(&self.id) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count == 0 {
                known.remove(&self.id);
            }
        }
    }
}

/// The pause between two looks whether a command may be sent.
const LOOK: Duration = Duration::from_millis(20);

/// How late a command may arrive that was sent just before its connection ended.
const LATEST: Duration = Duration::from_secs(1);
