//! When the clocks of the servers are read.

use std::sync::Arc;

use super::Quorum;
use crate::join::join_all;
use crate::server::fault::Fault;

impl Quorum {
    /// Reads the clocks again in the background, if it is time.
    pub fn keep_time(self: &Arc<Self>) {
        if self.clocks.are_due() {
            let quorum = self.clone();
            tokio::spawn(async move { join_all((0..quorum.members()).map(|at| quorum.read_clock(at))).await });
        }
    }

    /// Reads the clock of a server, if it answers and counts.
    pub async fn read_clock(&self, at: usize) -> Result<(), Fault> {
        let member = self.member(at)?;
        let wire = member.shared().await?;
        self.check_counts(at, &wire)?;
        let sent = self.now();
        let read = self.clocks.read(at, &wire, Some(self.longest_answer())).await;
        match read {
            Ok(()) => self.answers.note(at, sent),
            Err(_) => member.forget(&wire),
        }
        read
    }
}
