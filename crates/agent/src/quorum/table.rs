//! The locks that the agent holds, by name and owner, and the tasks that keep them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlock_client::{Error, Guard};
use dlock_core::{Owner, Token};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::hold::{Due, Hold, on_servers};
use crate::quorum::hold::{Anchor, AnchorId, End};
use crate::stats::Stats;

type Holds = HashMap<Vec<u8>, Vec<Arc<Hold>>>;
type Lapsed = HashSet<(Vec<u8>, Token)>;
type Unconfirmed = HashMap<(Vec<u8>, Owner), Instant>;

/// Finds holds. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Table {
    holds: Arc<Mutex<Holds>>,
    count: Arc<AtomicUsize>,
    /// The tokens of lapsed holds that may still be on the servers, whose lease is longer than the client's.
    lapsed: Arc<Mutex<Lapsed>>,
    /// The locks whose release no majority has confirmed, and the ends of their leases on the servers.
    unconfirmed: Arc<Mutex<Unconfirmed>>,
    /// Releases that no client waits for.
    releases: Arc<Mutex<JoinSet<()>>>,
    pub stats: Arc<Stats>,
}

impl Table {
    pub fn new(stats: Arc<Stats>) -> Self {
        Self {
            holds: Arc::default(),
            count: Arc::default(),
            lapsed: Arc::default(),
            unconfirmed: Arc::default(),
            releases: Arc::default(),
            stats,
        }
    }

    /// Returns the owner's live hold.
    pub fn of(&self, key: &[u8], owner: &Owner) -> Option<Arc<Hold>> {
        self.holds().get(key)?.iter().find(|hold| hold.owner == *owner && hold.is_live()).cloned()
    }

    /// Returns the hold with this token, even one that is over.
    pub fn with(&self, key: &[u8], token: Token) -> Option<Arc<Hold>> {
        self.holds().get(key)?.iter().find(|hold| hold.token == token).cloned()
    }

    /// Returns whether the hold with this token has lapsed and may still be on the servers.
    pub fn has_lapsed(&self, key: &[u8], token: Token) -> bool {
        self.lapsed().contains(&(key.to_vec(), token))
    }

    /// Returns all live holds of a lock.
    pub fn all(&self, key: &[u8]) -> Vec<Arc<Hold>> {
        let holds = self.holds();
        holds.get(key).into_iter().flatten().filter(|hold| hold.is_live()).cloned().collect()
    }

    /// Returns how many holds there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a hold and begins to keep it, unless its owner has one: then the other is returned.
    pub fn add(&self, hold: &Arc<Hold>) -> Result<(), Arc<Hold>> {
        let mut holds = self.holds();
        let of_key = holds.entry(hold.key.clone()).or_default();
        if let Some(other) = of_key.iter().find(|other| other.owner == hold.owner && other.is_live()) {
            return Err(other.clone());
        }
        of_key.push(hold.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(holds);
        self.unconfirmed().remove(&(hold.key.clone(), hold.owner.clone()));
        Stats::count(&self.stats.grants);
        hold.kept_by(tokio::spawn(keep(self.clone(), hold.clone())).abort_handle());
        Ok(())
    }

    /// Removes a hold.
    fn remove(&self, hold: &Arc<Hold>) {
        let mut holds = self.holds();
        if let Some(of_key) = holds.get_mut(&hold.key) {
            let before = of_key.len();
            of_key.retain(|other| !Arc::ptr_eq(other, hold));
            self.count.fetch_sub(before - of_key.len(), Ordering::Relaxed);
            if of_key.is_empty() {
                holds.remove(&hold.key);
            }
        }
    }

    /// Removes a hold whose lease has passed, and releases it in the background. Until the servers have released it or
    /// their lease has ended, [`has_lapsed`](Self::has_lapsed) knows it.
    fn lapse(&self, hold: Arc<Hold>) {
        Stats::count(&self.stats.lapses);
        let lapsed = (hold.key.clone(), hold.token);
        self.lapsed().insert(lapsed.clone());
        self.remove(&hold);
        let table = self.clone();
        self.spawn(async move {
            if let Some(guard) = hold.take().await {
                let ends = end_on_servers(&hold, &guard);
                // The guard of a late agent has ended, and says that it is lost while the servers have the lock.
                if guard.release().await.is_err() {
                    return table.lapsed_until(&hold, ends);
                }
            }
            table.lapsed().remove(&lapsed);
        });
    }

    /// Lets [`has_lapsed`](Self::has_lapsed) know a hold whose guard has ended, until the servers have executed what was
    /// sent for it, and their leases have ended.
    fn lapsed_until(&self, hold: &Hold, ends: Instant) {
        let (table, lapsed) = (self.clone(), (hold.key.clone(), hold.token));
        self.lapsed().insert(lapsed.clone());
        // An agent that stops waits for releases, not for this.
        tokio::spawn(async move {
            sleep_until((ends + LATEST).into()).await;
            table.lapsed().remove(&lapsed);
        });
    }

    /// Releases a hold. [`Error::Lost`]: it was not held any more.
    pub async fn release(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        if !hold.finish() {
            return Err(Error::Lost);
        }
        self.remove(hold);
        let Some(guard) = hold.take().await else { return Err(Error::Lost) };
        let ends = end_on_servers(hold, &guard);
        let outcome = guard.release().await;
        match &outcome {
            Ok(()) => Stats::count(&self.stats.releases),
            Err(Error::Lost) => self.lapsed_until(hold, ends),
            Err(_) => {
                let mut unconfirmed = self.unconfirmed();
                unconfirmed.retain(|_, ends| *ends > Instant::now());
                unconfirmed.insert((hold.key.clone(), hold.owner.clone()), ends);
            }
        }
        outcome
    }

    /// Returns how much longer the lease of the owner's lock lasts, if no majority has confirmed the release.
    pub fn unconfirmed_for(&self, key: &[u8], owner: &Owner) -> Option<Duration> {
        let ends = *self.unconfirmed().get(&(key.to_vec(), owner.clone()))?;
        Some(ends.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    fn lapsed(&self) -> MutexGuard<'_, Lapsed> {
        self.lapsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unconfirmed(&self) -> MutexGuard<'_, Unconfirmed> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a connection or a named session, and releases its holds in the background.
    pub fn end(&self, anchor: &Arc<Anchor>) {
        for hold in anchor.end(End::Over) {
            Stats::count(&self.stats.session_ends);
            let table = self.clone();
            self.spawn(async move {
                let _ = table.release(&hold).await;
            });
        }
    }

    /// Waits until the releases that run in the background have ended.
    pub async fn settled(&self) {
        let mut releases = std::mem::take(&mut *self.releases());
        while releases.join_next().await.is_some() {}
    }

    fn spawn(&self, release: impl Future<Output = ()> + Send + 'static) {
        let mut releases = self.releases();
        while releases.try_join_next().is_some() {}
        releases.spawn(release);
    }

    fn releases(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out a hold that the servers may no longer have. The session that it is bound to ends, too, and its other
    /// holds are unbound.
    fn lose(&self, hold: &Arc<Hold>) {
        let anchor = hold.anchor();
        let others = match &anchor {
            Some(anchor) => anchor.lose(hold),
            None => hold.finish().then(Vec::new),
        };
        let Some(others) = others else { return };
        self.lapsed_until(hold, Instant::now() + drift(hold));
        self.remove(hold);
        Stats::count(&self.stats.lost);
        if let Some(anchor) = anchor {
            self.stats.log(&format!("lost {} of {}", shown(&hold.key), whose(&anchor)));
            others.iter().for_each(|other| other.unbind(&anchor));
        }
    }

    /// Takes out all holds, for an agent that stops, and returns their guards.
    pub async fn clear(&self) -> Vec<Guard> {
        let holds: Vec<_> = self.holds().drain().flat_map(|(_, holds)| holds).collect();
        self.count.fetch_sub(holds.len(), Ordering::Relaxed);
        let mut guards = Vec::new();
        for hold in holds.into_iter().filter(|hold| hold.finish()) {
            guards.extend(hold.take().await);
        }
        guards
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when the leases on the servers have ended: later than the guard, because clocks drift.
fn end_on_servers(hold: &Hold, guard: &Guard) -> Instant {
    Instant::now() + guard.remaining() + drift(hold)
}

/// Returns how much later a lease may end on a server than by the guard.
fn drift(hold: &Hold) -> Duration {
    on_servers(hold.longest) - hold.longest
}

/// Keeps a hold until it is lost or released, or its lease ends. Renews it only while it is bound.
async fn keep(table: Table, hold: Arc<Hold>) {
    let mut lost = std::pin::pin!(hold.lost());
    let third = hold.longest / 3;
    let mut renewal = Instant::now() + third;
    loop {
        let at = match hold.due() {
            Due::Renewal => renewal,
            Due::End(at) => at,
            Due::Nothing => return,
        };
        tokio::select! {
            () = &mut lost => return table.lose(&hold),
            () = hold.changed.notified() => continue,
            () = sleep_until(at.into()) => {}
        }
        match hold.due() {
            Due::Renewal if renewal <= Instant::now() => {
                renewal = Instant::now()
                    + match hold.keep().await {
                        Ok(()) => third,
                        Err(Error::Lost) => return table.lose(&hold),
                        Err(_) => (hold.longest / 30).clamp(MIN_PAUSE, MAX_PAUSE),
                    };
            }
            Due::End(_) if hold.finish_at_end() => {
                // The release runs in another task: `Hold::take` aborts this one.
                table.lapse(hold);
                return;
            }
            // The hold was renewed, bound, unbound or released meanwhile.
            Due::Renewal | Due::End(_) | Due::Nothing => {}
        }
    }
}

fn whose(anchor: &Anchor) -> String {
    match &anchor.id {
        AnchorId::Connection(number) => format!("connection {number}, which is closed"),
        AnchorId::Named(id) => format!("session {}, which is forgotten", shown(id.as_bytes())),
    }
}

fn shown(bytes: &[u8]) -> String {
    format!("'{}'", bytes.get(..64).unwrap_or(bytes).escape_ascii())
}

/// How late a server executes a command at most, counted from when it was sent.
const LATEST: Duration = Duration::from_secs(1);
/// Bounds of the pause between two attempts at a renewal.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);
