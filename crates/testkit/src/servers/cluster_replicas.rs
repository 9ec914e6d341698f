//! A cluster in which every primary has a replica.

use crate::cluster::{CONF, Cluster, info_field_of_cluster};
use crate::server::{Server, Setup};
use crate::wait::soon;
use crate::wire::{list_of, text_of};

pub struct ReplicatedCluster {
    /// The nodes that were primaries at the start.
    pub primaries: Cluster,
    /// The nodes that were replicas at the start, each of the primary with the same number.
    pub replicas: Vec<Server>,
}

impl ReplicatedCluster {
    /// Starts a cluster with this number of primaries.
    #[track_caller]
    pub fn start(size: usize) -> Self {
        let primaries = Cluster::start(size);
        let replicas: Vec<_> =
            (0..size).map(|_| Setup::new().conf(CONF).conf("appendonly yes\nappendfsync no").start()).collect();
        let whole = Self { primaries, replicas };
        for replica in &whole.replicas {
            whole.primaries.client(0).ok(format!("CLUSTER MEET 127.0.0.1 {}", replica.port()));
        }
        for node in whole.servers() {
            let known = || info_field_of_cluster(&mut node.client(), "cluster_known_nodes");
            soon("the nodes know each other", || known() == Some((2 * size).to_string()));
        }
        for (at, replica) in whole.replicas.iter().enumerate() {
            replica.client().ok(format!("CLUSTER REPLICATE {}", whole.primaries.id(at)));
        }
        for (at, replica) in whole.replicas.iter().enumerate() {
            replica.wait_synced(&whole.primaries.nodes[at]);
        }
        for node in whole.servers() {
            let replicas = || text_of(&node.client().run("CLUSTER NODES")).matches("slave ").count();
            soon("all nodes know the replicas", || replicas() == size);
            // Valkey 8.0 does not save by itself that a replica has changed its shard. It refuses to start from a file in
            // which a replica and its primary are in different shards.
            let shards = || list_of(&node.client().run("CLUSTER SHARDS")).len();
            soon("all nodes know the shards of the replicas", || shards() == size);
            node.client().ok("CLUSTER SAVECONFIG");
        }
        whole
    }

    /// Returns all nodes, first those that were primaries at the start.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.primaries.nodes.iter().chain(&self.replicas)
    }

    pub fn ports(&self) -> Vec<u16> {
        self.servers().map(Server::port).collect()
    }
}
