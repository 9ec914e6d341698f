//! `ACQUIRE`, `RLOCK`, `WLOCK`, and the first `RACQUIRE` of an owner.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_client::{Error, Guard};
use dlock_core::args::{self, Malformed};
use dlock_core::{BindTo, Command, LeaseChoice, Mode, Owner, RequestId};
use tokio::time::sleep_until;

use super::hold::{Hold, Unbound, on_servers};
use super::sessions::NO_SESSION;
use super::{Quorum, malformed, not_offered, outage};
use crate::quorum::hold::{Anchor, AnchorId};
use crate::resp::{Reply, Request};
use crate::stats::Stats;

/// An acquisition in progress. When it is dropped, it leaves the queues and releases what it was granted.
pub(super) type Pending = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// The request of a client.
pub(super) struct Wanted {
    pub key: Vec<u8>,
    pub owner: Owner,
    /// Whether the agent has drawn the owner, which must then be in the reply.
    is_drawn: bool,
    command: Command,
    pub lease: Duration,
    /// How long the request waits. `None`: not at all. Zero: without limit.
    pub block: Option<Duration>,
    pub request: Option<RequestId>,
    anchor: Option<Arc<Anchor>>,
}

impl Wanted {
    pub fn mode(&self) -> Mode {
        if self.command == Command::Rlock { Mode::Shared } else { Mode::Exclusive }
    }
}

impl Quorum {
    /// Answers a command that acquires one lock. `None`: the client is gone, or its connection must be closed.
    pub async fn acquire(
        &self,
        command: Command,
        request: &Request,
        connection: &Arc<Anchor>,
        gone: impl Future<Output = ()>,
    ) -> Option<Reply> {
        match self.wanted(command, request, connection) {
            Ok(wanted) => match self.own(&wanted).await {
                Some(reply) => Some(reply),
                None if self.table.len() >= self.max_holds => Some(Reply::error(TOO_MANY)),
                None => self.wait(wanted, gone).await,
            },
            Err(reply) => Some(reply),
        }
    }

    fn wanted(&self, command: Command, request: &Request, connection: &Arc<Anchor>) -> Result<Wanted, Reply> {
        let name = request.name();
        let wrong = |what: Malformed| malformed(&what, &name);
        let key = request.word(1).ok_or_else(|| wrong(Malformed::Arity))?;
        if key.is_empty() {
            return Err(wrong(Malformed::EmptyKey));
        }
        let said = args::Acquire::parse(request.after(2), command, self.limits()).map_err(wrong)?;
        if let Some(why) = why_not(&said) {
            return Err(not_offered(why));
        }
        let lease = match said.lease {
            LeaseChoice::For(lease) => Duration::from_millis(lease.get()),
            LeaseChoice::Own | LeaseChoice::Until(_) => self.default_lease,
        };
        let anchor = self.anchor(&said.session, connection, lease)?;
        let (owner, is_drawn) = match said.owner {
            Some(owner) => (owner, false),
            None => (Owner::from_uuid(uuid()), true),
        };
        let (key, block) = (key.to_vec(), said.block.map(Duration::from_millis));
        Ok(Wanted { key, owner, is_drawn, command, lease, block, request: said.request, anchor })
    }

    /// Returns the session of a command, if it names one.
    pub(super) fn anchor(
        &self,
        session: &BindTo<dlock_core::SessionId>,
        connection: &Arc<Anchor>,
        lease: Duration,
    ) -> Result<Option<Arc<Anchor>>, Reply> {
        match session {
            BindTo::Nothing => Ok(None),
            BindTo::Connection => Ok(Some(connection.clone())),
            BindTo::Named(id) => {
                let (anchor, timeout) = self.sessions.find(id).ok_or_else(|| Reply::error(NO_SESSION))?;
                // A heartbeat promises that each hold of the session lasts for the session's time. Just before a
                // renewal, a hold has only two thirds of its lease left.
                if lease < 2 * timeout {
                    return Err(not_offered(TOO_SHORT));
                }
                Ok(Some(anchor))
            }
        }
    }

    /// Answers the request if its owner holds the lock already.
    async fn own(&self, wanted: &Wanted) -> Option<Reply> {
        let hold = self.table.of(&wanted.key, &wanted.owner)?;
        if wanted.request.is_some() && hold.request == wanted.request && hold.mode == wanted.mode() {
            return self.repeated(wanted, &hold).await;
        }
        Some(match (wanted.command, wanted.block) {
            (Command::Acquire, Some(_)) => Reply::error(DEADLOCK),
            (Command::Acquire, None) => {
                Stats::count(&self.table.stats.refusals);
                Reply::Nil
            }
            _ => not_offered("another entry of the same owner: a lock is not reentrant"),
        })
    }

    /// Answers a request that repeats the one that was granted this hold. `None`: the hold has ended meanwhile.
    async fn repeated(&self, wanted: &Wanted, hold: &Arc<Hold>) -> Option<Reply> {
        if let Some(anchor) = &wanted.anchor {
            let bound = match anchor.bind(hold) {
                Err(Unbound::TooShort) => match hold.keep().await {
                    Ok(()) => anchor.bind(hold),
                    Err(Error::Lost) => return None,
                    Err(error) => return Some(outage(&self.table.stats, &error)),
                },
                bound => bound,
            };
            match bound {
                Ok(()) => {}
                Err(Unbound::Over) => return None,
                Err(why) => return not_bound(why, anchor),
            }
        }
        Some(Reply::number(hold.token.get()))
    }

    async fn wait(&self, wanted: Wanted, gone: impl Future<Output = ()>) -> Option<Reply> {
        let is_waiting = wanted.block.is_some();
        let _waiting = is_waiting.then(|| Stats::present(&self.table.stats.waiting));
        let taken = if is_waiting { self.waiting.take_over(&wanted).await } else { None };
        // The servers would end a hold of the first request before the longer lease of its repeat is over.
        let taken = taken.filter(|(_, lease)| *lease >= wanted.lease).map(|(pending, _)| pending);
        // The first request may have been granted at this moment.
        if is_waiting
            && taken.is_none()
            && wanted.request.is_some()
            && let Some(reply) = self.own(&wanted).await
        {
            return Some(reply);
        }
        // An acquisition that was taken over has the time of the first request: more than the repeat has left, or less.
        let is_taken = taken.is_some();
        let limit = wanted.block.filter(|block| is_taken && !block.is_zero());
        let limit = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || limit.map_or(Duration::ZERO, |limit| limit.saturating_duration_since(Instant::now()));
        let mut pending = taken.unwrap_or_else(|| self.begin(&wanted, wanted.block));
        let mut place = self.waiting.join(&wanted);
        let mut session = std::pin::pin!(ended(wanted.anchor.as_ref().map(|anchor| anchor.ended())));
        let mut gone = std::pin::pin!(gone);
        let outcome = loop {
            let outcome = tokio::select! {
                biased;
                () = &mut gone, if is_waiting => return None,
                () = &mut session => return wanted.anchor.as_ref().and_then(ended_reply),
                repeat = place.repeated() => {
                    let _ = repeat.send(pending);
                    return Some(Reply::Nil);
                }
                outcome = &mut pending => outcome,
                () = until(limit) => break Err(Error::Contention),
            };
            match outcome {
                Err(Error::Contention) if is_taken && (limit.is_none() || !left().is_zero()) => {
                    pending = self.begin(&wanted, Some(left()));
                }
                outcome => break outcome,
            }
        };
        drop(place);
        match outcome {
            Ok(guard) => self.granted(wanted, guard).await,
            Err(Error::Contention) => {
                Stats::count(&self.table.stats.refusals);
                Some(Reply::Nil)
            }
            Err(error) => Some(outage(&self.table.stats, &error)),
        }
    }

    /// Begins an acquisition that waits for this time, as `Wanted::block`.
    fn begin(&self, wanted: &Wanted, block: Option<Duration>) -> Pending {
        let key = &wanted.key;
        let acquire = match wanted.command {
            Command::Rlock => self.client.read(key),
            Command::Wlock => self.client.write(key),
            _ => self.client.acquire(key),
        };
        let acquire = match block {
            None => acquire.no_wait(),
            Some(block) if block.is_zero() => acquire,
            Some(block) => acquire.wait(block),
        };
        let acquire = acquire.lease(on_servers(wanted.lease)).no_renewal();
        // The servers show this owner among waiters and holders.
        let acquire = match std::str::from_utf8(&wanted.owner.text()) {
            Ok(owner) if owner.len() <= MAX_LABEL => acquire.owner_label(owner),
            _ => acquire,
        };
        acquire.into_future()
    }

    /// Keeps the lock that was granted, and returns the reply.
    async fn granted(&self, wanted: Wanted, guard: Guard) -> Option<Reply> {
        let mode = wanted.mode();
        let Wanted { key, owner, is_drawn, lease, request, anchor, .. } = wanted;
        let hold = Arc::new(Hold::new(key, owner, mode, request, lease, guard));
        if self.table.add(&hold).is_err() {
            // A later request of the same owner was faster.
            let _ = self.table.release(&hold).await;
            return Some(not_offered("another entry of the same owner: a lock is not reentrant"));
        }
        // While the request waited, a heartbeat may have given the session more time than the lease has.
        if let Some(anchor) = anchor
            && let Err(why) = anchor.bind(&hold)
        {
            let _ = self.table.release(&hold).await;
            return not_bound(why, &anchor);
        }
        let token = Reply::number(hold.token.get());
        Some(if is_drawn { Reply::Array(vec![Reply::bulk(&*hold.owner.text()), token]) } else { token })
    }
}

/// Returns the option that a quorum cannot offer, and the reason.
fn why_not(said: &args::Acquire) -> Option<&'static str> {
    if said.min_token.is_some() {
        Some("MINTOKEN: the agent raises the tokens by itself")
    } else if said.cap.is_some() {
        Some("MAXHOLD: none of its servers knows when the lock was granted")
    } else if matches!(said.lease, LeaseChoice::Until(_)) {
        Some("EXAT and PXAT: its servers have clocks of their own")
    } else {
        None
    }
}

async fn ended(session: Option<impl Future<Output = ()>>) {
    match session {
        Some(session) => session.await,
        None => std::future::pending().await,
    }
}

async fn until(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the reply to a client whose session has ended. `None`: the session is the connection, so the client is gone.
fn ended_reply(anchor: &Arc<Anchor>) -> Option<Reply> {
    match anchor.id {
        AnchorId::Connection(_) => None,
        AnchorId::Named(_) => Some(Reply::error(NO_SESSION)),
    }
}

/// Returns the reply to a client whose hold was not bound. `None`: as for [`ended_reply`].
pub(super) fn not_bound(why: Unbound, anchor: &Arc<Anchor>) -> Option<Reply> {
    match why {
        Unbound::NoSession => ended_reply(anchor),
        Unbound::TooShort => Some(not_offered(TOO_SHORT)),
        Unbound::Over => Some(Reply::Nil),
    }
}

fn uuid() -> [u8; 16] {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().into_bytes()
}

const DEADLOCK: &str = "DEADLOCK the owner holds the lock already, and over a quorum nobody enters it again";

const TOO_SHORT: &str = "SESSIONID with a lease of less than twice the session's time";

const TOO_MANY: &str = "ERR max number of locks reached: --max-holds";

/// The longest owner that shows on the servers.
const MAX_LABEL: usize = 128;

#[cfg(test)]
mod tests {
    use dlock_core::Owner;

    #[test]
    fn a_drawn_owner_is_a_uuid_of_version_4() {
        let text = String::from_utf8_lossy(&Owner::from_uuid(super::uuid()).text()).into_owned();
        let parts: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{text}");
        assert!(text[14..].starts_with('4') && "89ab".contains(&text[19..20]), "{text}");
    }
}
