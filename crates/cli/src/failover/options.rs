//! The options of `dlock failover`.

use std::time::Duration;

use clap::Args;

use crate::values::duration;

/// `dlock failover`.
#[derive(Args)]
pub struct FailoverOptions {
    /// The replica to promote (not with Sentinel, which chooses) [default: in a cluster the node of the URL if it is a
    /// replica; otherwise the one that has received most]
    #[arg(long, value_name = "HOST:PORT", value_parser = super::server::address)]
    pub to: Option<(String, u16)>,

    /// How long the replicas may take to get what they lack; writes are paused for as long at most, and with Sentinel
    /// for half of its down-after-milliseconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub timeout: Duration,

    /// Check, and print the commands instead of sending them
    #[arg(long)]
    pub dry_run: bool,
}
