//! The measured systems, each in each way of keeping locks that is compared.

use dlock_comparison::systems::{self, Kept, Made};

use crate::clients::Client;
use crate::result::{Result, failed};
use crate::servers::{Servers, etcd, postgres, redis, zookeeper};

/// A system, and how to start and reach it.
#[derive(Clone, Copy)]
pub struct System(pub &'static systems::System);

impl System {
    pub fn all() -> impl Iterator<Item = Self> {
        systems::ALL.iter().map(System)
    }

    pub fn named(name: &str) -> Result<Self> {
        match Self::all().find(|system| system.0.name == name) {
            Some(system) => Ok(system),
            None => failed(format!("no system `{name}`")),
        }
    }

    /// Starts its servers and waits until they answer.
    pub async fn start(self) -> Result<Servers> {
        let nodes = self.0.nodes;
        let on_disk = matches!(self.0.kept, Kept::Fsync | Kept::MajorityFsync);
        match self.0.made {
            Made::Dlock | Made::DlockQuorum | Made::Redlock => redis::start(self.0.made, nodes, on_disk).await,
            Made::DlockReplica => redis::start_with_replica().await,
            Made::Etcd => etcd::start(nodes).await,
            Made::ZooKeeper => zookeeper::start(nodes).await,
            Made::Postgres => postgres::start().await,
        }
    }

    /// Opens a client with a connection and a session of its own, one of `clients`.
    pub async fn connect(self, addresses: &[String], clients: usize) -> Result<Client> {
        use crate::clients::{dlock, etcd, postgres, quorum, redlock, zookeeper};
        Ok(match self.0.made {
            Made::Dlock => Client::Dlock(dlock::Dlock::connect(addresses, false).await?),
            Made::DlockReplica => Client::Dlock(dlock::Dlock::connect(addresses, true).await?),
            Made::DlockQuorum => {
                Client::Quorum(quorum::Quorum::open(addresses, self.0.kept == Kept::MajorityFsync, clients)?)
            }
            Made::Redlock => Client::Redlock(redlock::Redlock::connect(addresses, clients).await?),
            Made::Etcd => Client::Etcd(Box::new(etcd::Etcd::connect(addresses).await?)),
            Made::ZooKeeper => Client::ZooKeeper(zookeeper::ZooKeeper::connect(addresses).await?),
            Made::Postgres => Client::Postgres(Box::new(postgres::Postgres::connect(addresses).await?)),
        })
    }
}
