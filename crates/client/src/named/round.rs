//! A heartbeat, and what follows from its reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::{Commands, Inner, Phase};
use crate::server::Fault;

impl Inner {
    /// A heartbeat, and what follows from its reply. Opens the session if the server does not know it.
    pub(super) async fn round(&self, patience: Option<Duration>) -> Result<(), Fault> {
        let (known, openings) = {
            let kept = self.kept();
            (kept.bindings.keys().copied().collect::<Vec<_>>(), kept.openings)
        };
        let mut sent = Instant::now();
        let mut count = None;
        if openings > 0 {
            match self.heartbeat("XX", patience).await {
                Err(fault) if fault.is_no_session() => {}
                reply => count = reply?,
            }
        }
        if count.is_none() {
            if *self.phase.borrow() == Phase::Closed {
                return Ok(());
            }
            self.unbind();
            sent = Instant::now();
            count = self.heartbeat("NX", patience).await?;
            if count.is_none() {
                // An earlier attempt has opened it, and its reply was lost.
                sent = Instant::now();
                count = self.heartbeat("XX", patience).await?;
            }
        }
        if !self.confirmed(sent) {
            return Ok(());
        }
        self.bind_again(&known, count.unwrap_or(0)).await?;
        let owed = self.kept().owed.clone();
        for releases in owed {
            if self.all(&releases, patience).await.iter().all(is_over) {
                self.kept().owed.retain(|other| !Arc::ptr_eq(other, &releases));
            }
        }
        Ok(())
    }

    async fn heartbeat(&self, option: &str, patience: Option<Duration>) -> Result<Option<u64>, Fault> {
        let patience = patience.unwrap_or_else(|| self.patience());
        self.server.heartbeat(&self.id, self.timeout, option, patience).await
    }

    /// Notes a heartbeat that was sent then. False: it is over.
    fn confirmed(&self, sent: Instant) -> bool {
        let phase = *self.phase.borrow();
        let mut kept = self.kept();
        if matches!(phase, Phase::Lost | Phase::Closed) || phase == Phase::Open && Instant::now() >= kept.until {
            return false;
        }
        (kept.until, kept.due) = (sent + self.timeout, sent + self.timeout / 3);
        drop(kept);
        self.phase.send_if_modified(|phase| {
            let opens = *phase == Phase::Opening;
            if opens {
                *phase = Phase::Open;
            }
            opens
        });
        true
    }

    /// The server has none of the bindings. The holds are certain only for as long as they were.
    fn unbind(&self) {
        let mut kept = self.kept();
        kept.openings += 1;
        let until = kept.until;
        for bound in kept.bindings.values_mut() {
            bound.unbound.get_or_insert(until);
        }
    }

    /// Binds locks again. `count`: how many bindings the server has, which had all the known ones.
    async fn bind_again(&self, known: &[u64], count: u64) -> Result<(), Fault> {
        let again: Vec<u64> = {
            let kept = self.kept();
            let there = known.iter().filter_map(|number| kept.bindings.get(number));
            let expected: usize = there.map(|bound| bound.bind.len()).sum();
            if count < expected as u64 {
                known.to_vec()
            } else {
                kept.bindings.iter().filter(|(_, bound)| bound.unbound.is_some()).map(|(number, _)| *number).collect()
            }
        };
        for some in again.chunks(AT_ONCE) {
            let binds: Vec<(u64, Commands)> = {
                let kept = self.kept();
                if Instant::now() >= kept.due {
                    return Ok(());
                }
                some.iter().filter_map(|number| Some((*number, kept.bindings.get(number)?.bind.clone()))).collect()
            };
            let all: Vec<_> = binds.iter().flat_map(|(_, bind)| bind.iter().cloned()).collect();
            let mut replies = self.all(&all, None).await.into_iter();
            for (number, bind) in binds {
                self.bound(number, &replies.by_ref().take(bind.len()).collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    /// Takes the replies to a binding. After a fault it is tried again, until the hold is not certain any more.
    fn bound(&self, number: u64, replies: &[Result<Value, Fault>]) {
        let is_gone = |reply: &Result<Value, Fault>| match reply {
            Ok(reply) => *reply == Value::Nil,
            Err(fault) => fault.is_wrong_type(),
        };
        if replies.iter().any(is_gone) {
            self.lose([number]);
        } else if replies.iter().all(Result::is_ok)
            && let Some(bound) = self.kept().bindings.get_mut(&number)
        {
            bound.unbound = None;
        }
    }

    async fn all(&self, commands: &[(Vec<u8>, Cmd)], patience: Option<Duration>) -> Vec<Result<Value, Fault>> {
        self.server.call_each(commands, patience.unwrap_or_else(|| self.patience())).await
    }

    /// Returns how long a reply may take: a part of the timeout, so that two may fail before the session is lost.
    fn patience(&self) -> Duration {
        (self.timeout / 6).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }
}

/// Returns whether a release need not be repeated.
fn is_over(reply: &Result<Value, Fault>) -> bool {
    reply.as_ref().err().is_none_or(Fault::is_wrong_type)
}

/// How long a reply to a heartbeat may take, at least and at most.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);

/// How many locks are bound again at once.
const AT_ONCE: usize = 100;
