//! A lock that the agent holds for a client, for how long, and what it is bound to: a connection or a named session.
//!
//! The client's lease is kept here. The lease of the guard on the servers is longer: a little, because clocks drift,
//! and more if the client has renewed with a shorter lease. The shorter of the two counts; for a bound hold, the
//! guard's.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use dlock_client::{Error, Guard};
use dlock_core::{Mode, Owner, RequestId, SessionId, Token};
use tokio::sync::{Notify, RwLock, watch};
use tokio::task::AbortHandle;

/// A lock that an owner holds.
pub(crate) struct Hold {
    pub key: Vec<u8>,
    pub owner: Owner,
    pub mode: Mode,
    pub token: Token,
    /// The id of the command that acquired it.
    pub request: Option<RequestId>,
    pub granted: Instant,
    /// The lease on the servers, which no renewal changes. A client's lease that would need a longer one is refused.
    pub longest: Duration,
    /// The owner that the servers know.
    pub drawn: String,
    /// The guard on the servers. A renewal borrows it; the release takes it.
    guard: RwLock<Option<Guard>>,
    keeping: Mutex<Keeping>,
    pub changed: Notify,
    keeper: OnceLock<AbortHandle>,
}

/// The client's part of a hold.
struct Keeping {
    /// The client's lease.
    lease: Duration,
    /// The end of that lease. A hold that is bound does not end then.
    ends: Instant,
    anchor: Option<Arc<Anchor>>,
    /// Whether the hold is being released, or has been lost.
    is_over: bool,
}

/// The next step for a hold.
pub(crate) enum Due {
    Renewal,
    /// The end of the client's lease, at this time.
    End(Instant),
    /// No step: the hold is over.
    Nothing,
}

impl Hold {
    pub fn new(
        key: Vec<u8>,
        owner: Owner,
        mode: Mode,
        request: Option<RequestId>,
        lease: Duration,
        guard: Guard,
    ) -> Self {
        let granted = Instant::now();
        let keeping = Keeping { lease, ends: granted + lease, anchor: None, is_over: false };
        Self {
            key,
            owner,
            mode,
            // Servers grant only tokens that `Token::new` accepts.
            token: Token::new(guard.token()).unwrap_or(Token::MAX),
            request,
            granted,
            longest: on_servers(lease),
            drawn: guard.owner().to_owned(),
            guard: RwLock::new(Some(guard)),
            keeping: Mutex::new(keeping),
            changed: Notify::new(),
            keeper: OnceLock::new(),
        }
    }

    /// Returns how much longer the owner certainly has the lock. Zero: not at all.
    pub fn remaining(&self) -> Duration {
        let keeping = self.keeping();
        if keeping.is_over {
            return Duration::ZERO;
        }
        let left = self.left_on_servers();
        match keeping.anchor {
            Some(_) => left,
            None => left.min(keeping.ends.saturating_duration_since(Instant::now())),
        }
    }

    /// Returns how much longer a majority of servers certainly has the hold.
    fn left_on_servers(&self) -> Duration {
        // `take` alone locks the guard exclusively, and the hold is over by then.
        let Ok(guard) = self.guard.try_read() else { return Duration::ZERO };
        guard.as_ref().map_or(Duration::ZERO, Guard::remaining)
    }

    /// Returns whether the hold is being released, or is known to be lost.
    pub fn is_over(&self) -> bool {
        self.keeping().is_over
    }

    pub fn is_live(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub fn lease(&self) -> Duration {
        self.keeping().lease
    }

    pub fn anchor(&self) -> Option<Arc<Anchor>> {
        self.keeping().anchor.clone()
    }

    pub fn is_bound_to(&self, anchor: &Arc<Anchor>) -> bool {
        self.keeping().anchor.as_ref().is_some_and(|bound| Arc::ptr_eq(bound, anchor))
    }

    /// Binds the hold for [`Anchor::bind`], which promises this time. Returns the anchor that it was bound to before.
    fn bind(&self, anchor: Arc<Anchor>, time: Duration) -> Result<Option<Arc<Anchor>>, Unbound> {
        let mut keeping = self.keeping();
        let left = self.left_on_servers();
        if keeping.is_over || left.is_zero() {
            return Err(Unbound::Over);
        }
        if left < time {
            return Err(Unbound::TooShort);
        }
        let before = keeping.anchor.replace(anchor);
        self.changed.notify_one();
        Ok(before)
    }

    /// Ends the binding to a session that was forgotten: the hold now ends with its lease, counted from the call, but
    /// not before the time that the session's last heartbeat has promised.
    pub fn unbind(&self, from: &Arc<Anchor>) {
        let promised = from.bound().time;
        let mut keeping = self.keeping();
        if keeping.anchor.take_if(|anchor| Arc::ptr_eq(anchor, from)).is_none() {
            return;
        }
        keeping.ends = Instant::now() + keeping.lease.max(promised);
        self.changed.notify_one();
    }

    pub fn due(&self) -> Due {
        match &*self.keeping() {
            Keeping { is_over: true, .. } => Due::Nothing,
            Keeping { anchor: Some(_), .. } => Due::Renewal,
            Keeping { ends, .. } => Due::End(*ends),
        }
    }

    /// Renews the hold on the servers, without changing the client's lease.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], or no majority has answered.
    pub async fn keep(&self) -> Result<(), Error> {
        match &*self.guard.read().await {
            Some(guard) => guard.renew().await,
            None => Err(Error::Lost),
        }
    }

    /// Renews the hold, and gives the client this lease, counted from the call.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], or no majority has answered: then the lease is the old one.
    pub async fn renew(&self, lease: Duration) -> Result<(), Error> {
        let ends = Instant::now() + lease;
        self.keep().await?;
        let mut keeping = self.keeping();
        // The hold may be over by now: its old lease has ended, or it was released or lost.
        if keeping.is_over {
            return Err(Error::Lost);
        }
        (keeping.lease, keeping.ends) = (lease, ends);
        drop(keeping);
        self.changed.notify_one();
        if self.is_live() { Ok(()) } else { Err(Error::Lost) }
    }

    /// Marks the hold as over. False: it was over before.
    pub fn finish(&self) -> bool {
        !std::mem::replace(&mut self.keeping().is_over, true)
    }

    /// Marks the hold as over if it is not bound and the client's lease has passed. False: the hold goes on, or it was
    /// over before.
    pub fn finish_at_end(&self) -> bool {
        let mut keeping = self.keeping();
        let has_passed = keeping.anchor.is_none() && keeping.ends <= Instant::now();
        has_passed && !std::mem::replace(&mut keeping.is_over, true)
    }

    /// Waits until the servers may no longer have the hold, or its guard is released. Ready at once if the guard was
    /// taken before.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let lost = self.guard.try_read().ok().and_then(|guard| guard.as_ref().map(Guard::lost));
        async move {
            if let Some(lost) = lost {
                lost.await;
            }
        }
    }

    /// Sets the task that keeps the hold.
    pub fn kept_by(&self, keeper: AbortHandle) {
        let _ = self.keeper.set(keeper);
    }

    /// Ends the task that keeps the hold, and returns the guard.
    pub async fn take(&self) -> Option<Guard> {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
        self.guard.write().await.take()
    }

    fn keeping(&self) -> MutexGuard<'_, Keeping> {
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lease to ask servers for when a client asks for `lease`. A quorum subtracts a hundredth of its lease and
/// 2 ms for the drift of clocks: what is left is not shorter than the client's lease.
pub(crate) fn on_servers(lease: Duration) -> Duration {
    Duration::from_millis(u64::try_from((lease + lease / 50).as_millis()).unwrap_or(u64::MAX).saturating_add(5))
}

/// Returns the longest lease that a client may ask for, if servers are asked for at most `longest`.
pub(crate) fn of_clients(longest: Duration) -> Duration {
    longest.saturating_sub(Duration::from_millis(6)) * 50 / 51
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_count_on_all_of_its_lease() {
        for ms in [1, 300, 999, 30_000, 3_600_000] {
            let (lease, servers) = (Duration::from_millis(ms), on_servers(Duration::from_millis(ms)));
            assert!(servers - dlock_quorum_drift(servers) >= lease, "{ms}");
        }
        for ms in [500, 10_000, 60_000] {
            let longest = Duration::from_millis(ms);
            assert!(on_servers(of_clients(longest)) <= longest, "{ms}");
        }
    }

    /// Returns the drift in docs/quorum.md.
    fn dlock_quorum_drift(lease: Duration) -> Duration {
        lease / 100 + Duration::from_millis(2)
    }
}

/// A connection or a named session, and the holds that are bound to it.
pub(crate) struct Anchor {
    pub id: AnchorId,
    bound: Mutex<Bound>,
    end: watch::Sender<Option<End>>,
}

struct Bound {
    holds: Vec<Weak<Hold>>,
    /// For how long the last heartbeat has promised that all holds live. Zero for a connection.
    time: Duration,
}

/// Why a hold was not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbound {
    /// The session has ended.
    NoSession,
    /// The hold may end before the time that the session's last heartbeat has promised.
    TooShort,
    /// The hold is being released, or is lost.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnchorId {
    /// The number of a connection.
    Connection(u64),
    Named(SessionId),
}

/// How a connection or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The bound holds are released.
    Over,
    /// A hold was lost, or may end before the session's time, so the client must learn that the session has ended. The
    /// other holds last until their leases end, and the client may bind them again, as after a failover of a server.
    Forgotten,
}

impl Anchor {
    /// Begins a session whose holds must live for this time. Zero: for as long as the connection is open.
    pub fn new(id: AnchorId, time: Duration) -> Arc<Self> {
        Arc::new(Self { id, bound: Mutex::new(Bound { holds: Vec::new(), time }), end: watch::Sender::new(None) })
    }

    /// Binds the hold. The client now relies on it for the time of the last heartbeat.
    ///
    /// # Errors
    ///
    /// [`Unbound`]; the hold is as it was.
    pub fn bind(self: &Arc<Self>, hold: &Arc<Hold>) -> Result<(), Unbound> {
        let Bound { holds, time } = &mut *self.bound();
        if self.end.borrow().is_some() {
            return Err(Unbound::NoSession);
        }
        let before = hold.bind(self.clone(), *time)?;
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, self)) {
            return Ok(());
        }
        if before.is_some() {
            // The hold may have been bound to this session earlier: with its old entry, it would count twice.
            holds.retain(|other| other.as_ptr() != Arc::as_ptr(hold));
        }
        // Entries of holds that are gone are removed before the list grows.
        if holds.len() >= 16 && holds.len() == holds.capacity() {
            holds.retain(|hold| hold.strong_count() > 0);
        }
        holds.push(Arc::downgrade(hold));
        Ok(())
    }

    /// Ends the session, and returns the holds that were bound. Empty if it had ended before.
    pub fn end(self: &Arc<Self>, how: End) -> Vec<Arc<Hold>> {
        let holds = self.close(how, &mut self.bound().holds);
        holds.into_iter().filter(|hold| hold.is_bound_to(self)).collect()
    }

    /// Marks the hold as over, because it is lost, and ends the session. No heartbeat is answered between the two.
    /// Returns the holds that were bound, with the lost one. `None`: the hold was over before.
    pub fn lose(self: &Arc<Self>, hold: &Hold) -> Option<Vec<Arc<Hold>>> {
        let mut bound = self.bound();
        if !hold.finish() {
            return None;
        }
        let holds = self.close(End::Forgotten, &mut bound.holds);
        drop(bound);
        Some(holds.into_iter().filter(|hold| hold.is_bound_to(self)).collect())
    }

    fn close(&self, how: End, bound: &mut Vec<Weak<Hold>>) -> Vec<Arc<Hold>> {
        if self.end.borrow().is_some() {
            return Vec::new();
        }
        self.end.send_replace(Some(how));
        bound.drain(..).filter_map(|hold| hold.upgrade()).collect()
    }

    /// Returns how many holds are bound, if all of them surely live for this time. `None`: one may not, because
    /// renewals fail, its loss is not noticed yet, or its lease is too short for this time; or the session has ended.
    pub fn vouch(self: &Arc<Self>, time: Duration) -> Option<usize> {
        let bound = &mut *self.bound();
        if self.end.borrow().is_some() {
            return None;
        }
        let holds = &mut bound.holds;
        holds.retain(|hold| hold.upgrade().is_some_and(|hold| hold.is_bound_to(self) && !hold.is_over()));
        if !holds.iter().filter_map(Weak::upgrade).all(|hold| hold.is_over() || hold.remaining() >= time) {
            return None;
        }
        bound.time = time;
        Some(holds.len())
    }

    /// Returns the live holds that are bound.
    pub fn holds(self: &Arc<Self>) -> Vec<Arc<Hold>> {
        let holds = &mut self.bound().holds;
        holds.retain(|hold| hold.upgrade().is_some_and(|hold| hold.is_bound_to(self)));
        holds.iter().filter_map(Weak::upgrade).filter(|hold| hold.is_live()).collect()
    }

    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits until the session has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.end.subscribe();
        async move {
            let _ = end.wait_for(Option::is_some).await;
        }
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
