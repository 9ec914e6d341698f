//! A session in a cluster: a [`Heart`] for each node with locks of the session, and locks whose slots move.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::ConnectionInfo;

use super::{Inner, Phase};
use crate::binding::Heart;
use crate::join::join_all;
use crate::owner::uuid;
use crate::server::fault::Fault;

impl Inner {
    /// Opens the session on the first node that answers. Each node gets a third of the limit.
    pub(super) async fn open_in_cluster(self: &Arc<Self>, within: Duration) -> Result<(), Fault> {
        self.kept().in_cluster = true;
        let mut failed = Fault::Later("no node of the cluster has slots".into());
        for node in self.server.primaries().await? {
            let name = node.addr().to_string();
            match self.begin(&name, Heart::new(self.id.clone(), Some(node), Instant::now()), within / 3).await {
                Ok(()) => return Ok(()),
                Err(fault) => failed = fault,
            }
        }
        Err(failed)
    }

    /// Returns the name of the heart on the node that has the key.
    pub(super) async fn heart_of(self: &Arc<Self>, key: &[u8], within: Duration) -> Result<String, Fault> {
        let node = match self.server.known_node_of(key) {
            Some(node) => node,
            None => self.server.node_of(key, within).await?,
        };
        self.heart_at(node).await
    }

    /// Returns the name of the heart on a node. Opens the session on the node if it is not open there.
    async fn heart_at(self: &Arc<Self>, node: ConnectionInfo) -> Result<String, Fault> {
        let name = node.addr().to_string();
        if self.beats_at(&name) {
            return Ok(name);
        }
        // A task of its own, because the caller may be dropped half-way: an open session needs heartbeats.
        let opening = self.runtime.spawn(self.clone().open_at(node, name));
        opening.await.unwrap_or_else(|_| Err(Fault::NotSent("the runtime has ended".into())))
    }

    /// Opens the session on one more node, unless another task has done so meanwhile.
    fn open_at(
        self: Arc<Self>,
        node: ConnectionInfo,
        name: String,
    ) -> Pin<Box<dyn Future<Output = Result<String, Fault>> + Send>> {
        Box::pin(async move {
            let _one = self.opening.lock().await;
            if self.beats_at(&name) {
                return Ok(name);
            }
            if *self.phase.borrow() == Phase::Open {
                self.begin(&name, Heart::new(uuid(), Some(node), Instant::now()), self.answer_within()).await?;
            }
            if *self.phase.borrow() == Phase::Open {
                return Ok(name);
            }
            // The session was closed meanwhile. If that was before this heart was known, the heart is closed here.
            let heart = self.kept().hearts.remove(&name);
            if let Some(Heart { id, node, .. }) = heart {
                self.server.close_session(&id, node.as_ref(), self.answer_within()).await?;
            }
            Err(Fault::Refused("the session has ended".into()))
        })
    }

    /// Returns whether the session is open on a node.
    fn beats_at(&self, name: &str) -> bool {
        self.kept().hearts.get(name).is_some_and(|heart| heart.until().is_some())
    }

    /// Binds the locks of a node that does not answer, or has become a replica, on the node that has them now.
    pub(super) async fn leave_node(self: &Arc<Self>, name: &str) {
        let numbers: Vec<u64> = self.kept().of(name).map(|(number, _)| number).collect();
        // The first lock says whether another node has taken over.
        let Some((first, others)) = numbers.split_first() else { return };
        if self.follow(*first, name).await.is_ok() {
            self.follow_all(others, name).await;
        }
    }

    /// Binds the locks with these numbers, which the node `from` has no more, on the nodes that have them now.
    pub(super) async fn follow_all(self: &Arc<Self>, numbers: &[u64], from: &str) {
        for some in numbers.chunks(super::round::AT_ONCE) {
            join_all(some.iter().map(|number| self.follow(*number, from))).await;
        }
    }

    /// Binds one lock on the node that has it now. Fails if that is still the node `from`, or does not answer.
    async fn follow(self: &Arc<Self>, number: u64, from: &str) -> Result<(), Fault> {
        let Some(hold) = self.kept().bindings.get(&number).map(|bound| bound.hold.clone()) else { return Ok(()) };
        let key = hold.names.first().map_or(&[][..], Vec::as_slice);
        let node = self.server.node_of(key, self.answer_within()).await?;
        let name = self.heart_at(node).await?;
        if name == from {
            return Err(Fault::Later("the lock is still on the node that it was to leave".into()));
        }
        let (id, openings) = {
            let mut kept = self.kept();
            let until = kept.hearts.get(from).and_then(|heart| heart.until());
            let to = kept.hearts.get(&name).map(|heart| (heart.id.clone(), heart.openings));
            let Some(to) = to else { return Ok(()) };
            let Some(bound) = kept.bindings.get_mut(&number) else { return Ok(()) };
            // Until the hold is bound on the new node, only the heart of the old one makes it certain.
            bound.unbound.get_or_insert_with(|| until.unwrap_or_else(Instant::now));
            bound.heart = name;
            to
        };
        let replies = self.all(&self.server.binds(&hold, &id), None).await;
        self.bound(number, openings, &replies);
        Ok(())
    }
}
