//! How a server keeps and passes on what it has.

/// The persistence and replication of writes.
#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Mode {
    #[value(name = "none")]
    NoPersistence,
    /// To a file, flushed once a second.
    Aof,
    /// To one replica, which the bench plays ([`crate::follower`]).
    Replica,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::NoPersistence, Self::Aof, Self::Replica];

    /// For `--mode` and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoPersistence => "none",
            Self::Aof => "aof",
            Self::Replica => "replica",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::NoPersistence => "no persistence",
            Self::Aof => "AOF everysec",
            Self::Replica => "one replica",
        }
    }

    pub fn config(self) -> &'static str {
        match self {
            Self::NoPersistence => "appendonly no\n",
            Self::Aof => "appendonly yes\nappendfsync everysec\nauto-aof-rewrite-percentage 0\n",
            Self::Replica => "appendonly no\nrepl-ping-replica-period 3600\n",
        }
    }
}
