//! The commands of named sessions.

use std::time::Duration;

use redis::{Cmd, ConnectionInfo, RedisError, Value, cmd};

use super::Server;
use super::commands::{self, millis};
use super::fault::Fault;
use super::nodes::Lane;
use crate::binding::{BoundHold, Owed};
use crate::holding::Hold;
use crate::inspect::Fields;
use crate::join::join_all;
use crate::options::Terms;

impl Server {
    /// Opens a session (`NX`), or keeps it (`XX`). Returns how many holds are bound to the session. With `NX`, returns
    /// `None` if the session is open already.
    pub async fn heartbeat(
        &self,
        (id, node): (&str, Option<&ConnectionInfo>),
        timeout: Duration,
        option: &str,
        within: Duration,
    ) -> Result<Option<u64>, Fault> {
        let mut heartbeat = cmd("DLOCK.SESSION");
        heartbeat.arg(id).arg("PX").arg(millis(timeout)).arg(option);
        match self.call_at_node(node, &heartbeat, within).await? {
            Value::Int(count) => Ok(Some(u64::try_from(count).unwrap_or(0))),
            Value::Nil => Ok(None),
            other => Err(commands::unexpected(&other)),
        }
    }

    /// Ends a session. The server releases its holds.
    pub async fn close_session(&self, id: &str, node: Option<&ConnectionInfo>, within: Duration) -> Result<(), Fault> {
        let mut close = cmd("DLOCK.SESSION");
        close.arg(id).arg("CLOSE");
        self.call_at_node(node, &close, within).await.map(drop)
    }

    /// Sends a command without a key to this node, or to the one server if there is no cluster.
    async fn call_at_node(
        &self,
        node: Option<&ConnectionInfo>,
        command: &Cmd,
        within: Duration,
    ) -> Result<Value, Fault> {
        match node {
            Some(node) => self.nodes.call_node(node, command, within).await,
            None => self.nodes.call(b"", command, Lane::Shared, Some(within)).await.map(|(reply, _)| reply),
        }
    }

    /// Returns all primaries of the cluster that have slots.
    pub async fn primaries(&self) -> Result<Vec<ConnectionInfo>, Fault> {
        self.nodes.primaries().await
    }

    /// Returns the node that was last known to have the key.
    pub fn known_node_of(&self, key: &[u8]) -> Option<ConnectionInfo> {
        self.nodes.known_node_of(key)
    }

    /// Asks which node has the key.
    pub async fn node_of(&self, key: &[u8], within: Duration) -> Result<ConnectionInfo, Fault> {
        // Any command with the key would do, because only the node that has the key answers. No hold has the token 1.
        let (_, link) = self.nodes.call(key, cmd("DLOCK.CHECK").arg(key).arg(1), Lane::Shared, Some(within)).await?;
        self.nodes.note(key, link.info());
        Ok(link.info().clone())
    }

    /// Returns whether the server is a node of a cluster.
    pub async fn is_in_cluster(&self, within: Duration) -> Result<bool, Fault> {
        let slots = self.nodes.call(b"", cmd("CLUSTER").arg("SLOTS"), Lane::Shared, Some(within)).await;
        match slots {
            Ok(_) => Ok(true),
            // The server is not in a cluster, or the user may not ask.
            Err(Fault::Refused(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Sends commands at once, and returns the result of each.
    pub async fn call_each(&self, commands: &[(Vec<u8>, Cmd)], within: Duration) -> Vec<Result<Value, Fault>> {
        let asked = commands.iter().map(|(key, command)| async move {
            self.nodes.call(key, command, Lane::Shared, Some(within)).await.map(|(reply, _)| reply)
        });
        join_all(asked).await
    }

    /// Returns how long a hold lasts at most if it is renewed. `None`: it has no cap, or the user may not ask.
    pub async fn cap_of(&self, hold: &BoundHold, within: Duration) -> Result<Option<Duration>, Fault> {
        let name = hold.names.first().map_or(&[][..], Vec::as_slice);
        let mut info = cmd("DLOCK.INFO");
        info.arg(name).arg("OWNER").arg(&hold.owner);
        let wrong = |error: RedisError| Fault::Refused(format!("DLOCK.INFO: {error}").into());
        let reply = match self.nodes.call(name, &info, Lane::Shared, Some(within)).await {
            Ok((Value::Nil, _)) => return Err(Fault::Later("it is not held".into())),
            Ok((reply, _)) => reply,
            Err(Fault::Refused(cause)) if cause.code() == Some("NOPERM") => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let holds: Vec<Value> = Fields::of(reply).and_then(|mut fields| fields.take("holds")).map_err(wrong)?;
        for hold_info in holds {
            let mut fields = Fields::of(hold_info).map_err(wrong)?;
            if fields.take::<u64>("token").map_err(wrong)? == hold.token {
                let cap: Option<u64> = fields.take("cap").map_err(wrong)?;
                return Ok(cap.map(Duration::from_millis));
            }
        }
        Err(Fault::Later("it is not held".into()))
    }

    /// Returns the commands that bind a hold to a session again.
    pub fn binds(&self, hold: &BoundHold, session: &str) -> Vec<(Vec<u8>, Cmd)> {
        hold.names.iter().map(|name| (name.clone(), commands::bind_named(hold, name, session))).collect()
    }

    /// Returns the releases of a hold.
    pub fn releases(hold: &Hold) -> Owed {
        let releases = hold.names.iter().map(|name| (name.clone(), commands::release(hold, name))).collect();
        Owed { releases, upgrade: None }
    }

    /// Returns the releases of what an acquisition may have been granted.
    pub fn releases_of(terms: &Terms) -> Owed {
        let releases = terms.names.iter().map(|name| (name.clone(), commands::release_all(name, terms))).collect();
        Owed { releases, upgrade: terms.upgrade.clone() }
    }

    /// Sends releases once that failed before. Returns whether the server has executed them all, or found keys of
    /// another type.
    pub async fn release_owed(&self, owed: &Owed, within: Duration) -> bool {
        let Owed { releases, upgrade } = owed;
        let released = releases.iter().map(|(key, release)| self.release_once(key, release, upgrade.as_ref(), within));
        join_all(released).await.iter().all(|released| released.as_ref().err().is_none_or(Fault::is_wrong_type))
    }
}
