//! A cluster of primaries, each with its share of the slots.

use crate::client::Client;
use crate::replica::info_field;
use crate::server::{Server, Setup};
use crate::wait::soon;
use crate::wire::text_of;

/// The settings of a cluster node.
pub const CONF: &str = "cluster-enabled yes\ncluster-node-timeout 5000\ncluster-require-full-coverage no\n";

pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster with this number of nodes.
    #[track_caller]
    pub fn start(size: usize) -> Self {
        let nodes: Vec<_> = (0..size).map(|_| Setup::new().conf(CONF).start()).collect();
        for (at, node) in nodes.iter().enumerate() {
            let mut client = node.client();
            let [from, to] = [at, at + 1].map(|n| n * 16384 / size);
            client.ok(format!("CLUSTER ADDSLOTSRANGE {from} {}", to - 1));
            client.ok(format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
        }
        for node in &nodes[1..] {
            nodes[0].client().ok(format!("CLUSTER MEET 127.0.0.1 {}", node.port()));
        }
        for node in &nodes {
            soon("the cluster is whole", || {
                let field = |name| info_field_of_cluster(&mut node.client(), name);
                field("cluster_slots_ok").as_deref() == Some("16384") && field("cluster_state").as_deref() == Some("ok")
            });
        }
        Self { nodes }
    }

    /// Starts a cluster of two nodes. Returns the node that owns the key's slot, and then the other node.
    #[track_caller]
    pub fn of_two(key: &str) -> (Self, usize, usize) {
        let cluster = Self::start(2);
        let home = cluster.home_of(key);
        (cluster, home, 1 - home)
    }

    pub fn client(&self, node: usize) -> Client {
        self.nodes[node].client()
    }

    /// Returns the node that owns the key's slot by the layout of [`Cluster::start`].
    pub fn home_of(&self, key: &str) -> usize {
        let slot = self.client(0).int(format!("CLUSTER KEYSLOT {key}"));
        (0..self.nodes.len()).find(|at| (slot as usize) < (at + 1) * 16384 / self.nodes.len()).expect("a slot")
    }

    pub fn id(&self, node: usize) -> String {
        self.client(node).text("CLUSTER MYID")
    }

    /// Begins to move the key's slot: `IMPORTING` on the target, `MIGRATING` on the source.
    pub fn begin_move(&self, key: &str, from: usize, to: usize) {
        let slot = self.client(0).int(format!("CLUSTER KEYSLOT {key}"));
        self.client(to).ok(format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        self.client(from).ok(format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
    }

    /// Moves a key with `MIGRATE`.
    pub fn migrate(&self, key: &str, from: usize, to: usize) {
        self.client(from).ok(format!("MIGRATE 127.0.0.1 {} {key} 0 10000", self.nodes[to].port()));
    }

    /// Ends the move of the key's slot: every node learns the new owner, the target first.
    pub fn end_move(&self, key: &str, to: usize) {
        let slot = self.client(0).int(format!("CLUSTER KEYSLOT {key}"));
        let id = self.id(to);
        let others = (0..self.nodes.len()).filter(|node| *node != to);
        for node in std::iter::once(to).chain(others) {
            self.client(node).ok(format!("CLUSTER SETSLOT {slot} NODE {id}"));
        }
    }
}

/// Returns a field of `CLUSTER INFO`.
#[track_caller]
pub fn info_field_of_cluster(client: &mut Client, field: &str) -> Option<String> {
    let text = text_of(&client.run("CLUSTER INFO"));
    text.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
}

/// Returns whether the server is a cluster node.
pub fn in_cluster(client: &mut Client) -> bool {
    info_field(client, "cluster", "cluster_enabled").as_deref() == Some("1")
}
