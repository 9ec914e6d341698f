//! The compared systems, each in each way of keeping locks.

/// A system with a setting.
#[derive(Debug)]
pub struct System {
    /// In figures and on the command line.
    pub name: &'static str,
    /// On the page.
    pub label: &'static str,
    /// The servers.
    pub made: Made,
    /// How many servers take part.
    pub nodes: usize,
    /// The failures that a grant survives.
    pub kept: Kept,
}

/// The servers and the recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A primary.
    Dlock,
    /// A primary, and a replica that confirms each grant and each release.
    DlockReplica,
    /// Independent servers.
    DlockQuorum,
    /// `SET NX PX` on plain servers, with polling.
    Redlock,
    /// The `Lock` RPC.
    Etcd,
    /// Ephemeral sequential nodes.
    ZooKeeper,
    /// Advisory locks.
    Postgres,
}

impl Made {
    /// Returns whether it is ours.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Dlock | Self::DlockReplica | Self::DlockQuorum)
    }
}

/// The failures that a grant survives: systems are compared with those of the same class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: it is in the memory of one server.
    Memory,
    /// The crash of the machine: it is synced to disk before the answer.
    Fsync,
    /// The loss of one server: it is in the memory of several.
    Majority,
    /// A majority of servers that sync every write.
    MajorityFsync,
}

impl Kept {
    /// All classes, in the order of the page.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Fsync, Self::Majority, Self::MajorityFsync];

    /// On the page.
    pub fn label(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fsync => "disk",
            Self::Majority => "memory of several",
            Self::MajorityFsync => "disks of a majority",
        }
    }
}

impl System {
    const fn new(name: &'static str, label: &'static str, made: Made, nodes: usize, kept: Kept) -> Self {
        Self { name, label, made, nodes, kept }
    }

    /// Returns whether a server can be killed while the others go on.
    pub fn fails_over(&self) -> bool {
        self.nodes == 3
    }
}

/// All that is measured.
pub const ALL: [System; 13] = [
    System::new("dlock", "dlock", Made::Dlock, 1, Kept::Memory),
    System::new("postgresql", "PostgreSQL, advisory lock", Made::Postgres, 1, Kept::Memory),
    System::new("set-nx", "Redis, `SET NX PX`", Made::Redlock, 1, Kept::Memory),
    System::new("dlock-fsync", "dlock, `appendfsync always`", Made::Dlock, 1, Kept::Fsync),
    System::new("etcd-1", "etcd, one node", Made::Etcd, 1, Kept::Fsync),
    System::new("zookeeper-1", "ZooKeeper, one node", Made::ZooKeeper, 1, Kept::Fsync),
    System::new("dlock-replica", "dlock, replica confirms", Made::DlockReplica, 2, Kept::Majority),
    System::new("dlock-quorum", "dlock, quorum of three", Made::DlockQuorum, 3, Kept::Majority),
    System::new("redlock", "Redlock, three servers", Made::Redlock, 3, Kept::Majority),
    System::new(
        "dlock-quorum-fsync",
        "dlock, quorum of three, `appendfsync always`",
        Made::DlockQuorum,
        3,
        Kept::MajorityFsync,
    ),
    System::new("redlock-fsync", "Redlock, three servers, `appendfsync always`", Made::Redlock, 3, Kept::MajorityFsync),
    System::new("etcd-3", "etcd, three nodes", Made::Etcd, 3, Kept::MajorityFsync),
    System::new("zookeeper-3", "ZooKeeper, three nodes", Made::ZooKeeper, 3, Kept::MajorityFsync),
];
