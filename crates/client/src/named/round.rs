//! A heartbeat, and what follows from its reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionInfo, Value};

use super::{Inner, Phase};
use crate::binding::{Bound, BoundHold, Cap};
use crate::join::join_all;
use crate::server::fault::Fault;
use crate::validity::{Command, end};

impl Inner {
    /// Sends a heartbeat, and acts on its reply. Opens the session if the server does not know it. Then binds locks again
    /// and asks for caps. `within`: the time that each reply may take, if it is not [`Inner::answer_within`].
    pub(super) async fn round(self: &Arc<Self>, name: &str, within: Option<Duration>) -> Result<(), Fault> {
        let known: Vec<u64> = self.kept().of(name).map(|(number, _)| number).collect();
        let for_beat = within.unwrap_or_else(|| self.answer_within());
        let (command, count) = match self.beat_once(name, for_beat).await {
            Ok(Some(confirmed)) => confirmed,
            Ok(None) => return Ok(()),
            Err(fault) => {
                if self.kept().in_cluster {
                    self.leave_node(name).await;
                }
                return Err(fault);
            }
        };
        if !self.confirmed(name, command, (&known, count)) {
            return Ok(());
        }
        self.bind_again(name).await;
        self.learn_caps(name).await;
        Ok(())
    }

    /// Sends a heartbeat. Returns the heartbeat and the number of bindings on the server; `None`: the session is over.
    async fn beat_once(&self, name: &str, within: Duration) -> Result<Option<(Command, u64)>, Fault> {
        let heart = self.kept().hearts.get(name).map(|heart| (heart.id.clone(), heart.node.clone(), heart.openings));
        let Some((id, node, openings)) = heart else { return Ok(None) };
        let heartbeat = |option| self.heartbeat((&id, node.as_ref()), option, within);
        // Only a session that was opened before can be kept.
        if openings > 0 {
            let Some(command) = self.sends(name) else { return Ok(None) };
            match heartbeat("XX").await {
                Err(fault) if fault.is_no_session() => {
                    self.refused(name, command);
                }
                reply => return Ok(Some((command, reply?.unwrap_or(0)))),
            }
        }
        if *self.phase.borrow() == Phase::Closed {
            return Ok(None);
        }
        self.kept().unbind(name, Instant::now());
        let Some(mut command) = self.sends(name) else { return Ok(None) };
        let mut count = heartbeat("NX").await?;
        if count.is_none() {
            // An earlier `NX` has opened the session, and its reply was lost.
            self.refused(name, command);
            let Some(again) = self.sends(name) else { return Ok(None) };
            command = again;
            count = heartbeat("XX").await?;
        }
        Ok(Some((command, count.unwrap_or(0))))
    }

    /// Records that a heartbeat is about to be sent. `None`: the session is no longer kept on this server.
    fn sends(&self, name: &str) -> Option<Command> {
        Some(self.kept().hearts.get_mut(name)?.sends(Instant::now(), self.timeout))
    }

    /// Records that a heartbeat was not executed.
    fn refused(&self, name: &str, command: Command) {
        if let Some(heart) = self.kept().hearts.get_mut(name) {
            heart.refused(command);
        }
    }

    async fn heartbeat(
        &self,
        (id, node): (&str, Option<&ConnectionInfo>),
        option: &str,
        within: Duration,
    ) -> Result<Option<u64>, Fault> {
        self.server.heartbeat((id, node), self.timeout, option, within).await
    }

    /// Records that the server has answered a heartbeat. False: the session is over. `known` and `count`: see
    /// [`counted`](crate::binding::Kept::counted).
    fn confirmed(&self, name: &str, command: Command, (known, count): (&[u64], u64)) -> bool {
        let phase = *self.phase.borrow();
        let mut kept = self.kept();
        let now = Instant::now();
        let is_over = kept.hearts.get(name).is_none_or(|heart| heart.is_over(now));
        if is_over || matches!(phase, Phase::Lost | Phase::Closed) {
            return false;
        }
        kept.counted(name, known, count, now);
        if let Some(heart) = kept.hearts.get_mut(name) {
            heart.confirmed(now, command, self.timeout);
        }
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

    /// Binds the locks again that are not bound.
    async fn bind_again(self: &Arc<Self>, name: &str) {
        let again = self.kept().to_bind(name);
        for some in again.chunks(AT_ONCE) {
            let (id, openings, holds): (String, u64, Vec<(u64, Arc<BoundHold>)>) = {
                let kept = self.kept();
                // When the next heartbeat is due, the next round binds the rest.
                let Some(heart) = kept.hearts.get(name).filter(|heart| Instant::now() < heart.due) else { return };
                let hold =
                    |number: &u64| Some((*number, kept.bindings.get(number)?)).filter(|(_, it)| it.heart == name);
                let holds = some.iter().filter_map(hold).map(|(number, bound)| (number, bound.hold.clone()));
                (heart.id.clone(), heart.openings, holds.collect())
            };
            let all: Vec<_> = holds.iter().flat_map(|(_, hold)| self.server.binds(hold, &id)).collect();
            let mut replies = self.all(&all, None).await.into_iter();
            let mut elsewhere = Vec::new();
            for (number, hold) in holds {
                let replies: Vec<_> = replies.by_ref().take(hold.names.len()).collect();
                if replies.iter().any(|reply| reply.as_ref().err().is_some_and(Fault::is_no_session)) {
                    elsewhere.push(number);
                }
                self.bound(number, openings, &replies);
            }
            if self.kept().in_cluster {
                // The lock is on a node where the session has another id, or this node has been restarted.
                self.follow_all(&elsewhere, name).await;
            }
        }
    }

    /// Asks for the caps of locks that have been held for a third of their lease. Most locks are released before.
    async fn learn_caps(&self, name: &str) {
        let now = Instant::now();
        let due = |bound: &Bound| matches!(bound.cap, Cap::Unknown { ask, .. } if ask <= now);
        let asked: Vec<(u64, Arc<BoundHold>)> = {
            let kept = self.kept();
            let due = kept.of(name).filter(|(_, bound)| due(bound)).map(|(number, bound)| (number, bound.hold.clone()));
            due.collect()
        };
        for some in asked.chunks(AT_ONCE) {
            if self.kept().hearts.get(name).is_none_or(|heart| Instant::now() >= heart.due) {
                return;
            }
            let sent = Instant::now();
            let asking = some.iter().map(|(_, hold)| self.server.cap_of(hold, self.answer_within()));
            for ((number, _), cap) in some.iter().zip(join_all(asking).await) {
                // Without an answer, the next round asks again, for as long as the hold is certain.
                if let (Ok(cap), Some(bound)) = (cap, self.kept().bindings.get_mut(number)) {
                    bound.cap = cap.map_or(Cap::None, |left| Cap::At(end(sent, left)));
                }
            }
        }
    }

    /// Acts on the replies to a binding. After a fault, each round repeats it, as long as the hold is certain.
    /// `openings`: how often the session had been opened on the server when it was asked.
    pub(super) fn bound(&self, number: u64, openings: u64, replies: &[Result<Value, Fault>]) {
        let is_gone = |reply: &Result<Value, Fault>| match reply {
            Ok(reply) => *reply == Value::Nil,
            Err(fault) => fault.is_wrong_type(),
        };
        let is_lost = replies.iter().any(is_gone)
            || replies.iter().all(Result::is_ok) && !self.kept().bound(number, openings, Instant::now());
        if is_lost {
            self.lose([number]);
        }
    }

    /// Sends commands at once, and returns the result of each.
    pub(super) async fn all(&self, commands: &[(Vec<u8>, Cmd)], within: Option<Duration>) -> Vec<Result<Value, Fault>> {
        self.server.call_each(commands, within.unwrap_or_else(|| self.answer_within())).await
    }

    /// Returns how long a reply may take: a part of the timeout. With a timeout of 600 ms or more, two heartbeats may
    /// stay unanswered before the session is lost; with a shorter one, at least one.
    pub(super) fn answer_within(&self) -> Duration {
        (self.timeout / 6).clamp(SHORTEST_ANSWER, LONGEST_ANSWER)
    }
}

/// The least and the most time that a reply may take, whatever the timeout of the session is.
const SHORTEST_ANSWER: Duration = Duration::from_millis(100);
const LONGEST_ANSWER: Duration = Duration::from_secs(2);

/// How many locks are bound again, or have their caps asked for, at once.
pub(super) const AT_ONCE: usize = 100;
