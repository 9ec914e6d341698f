//! More guards for an owner that holds the lock already: re-entry, upgrade, downgrade.

use std::sync::atomic::Ordering;

use crate::acquire::Acquire;
use crate::backend::Backend;
use crate::error::Error;
use crate::guard::Guard;
use crate::options::{Mode, Terms, Wait};
use crate::owner::Naming;

impl Guard {
    /// Enters the lock once more: another guard of the same hold, with the same owner, token and lease. The last of its
    /// guards releases the hold. Renews the lease (one round trip), because a lost lock cannot be entered again.
    ///
    /// # Errors
    ///
    /// Returns those of [`renew`](Guard::renew).
    pub async fn enter(&self) -> Result<Guard, Error> {
        self.renew().await?;
        Ok(self.another())
    }

    /// Acquires the lock exclusively for this reader: await it to get a second guard. This guard stays a reader
    /// meanwhile and afterwards. Release the second guard to stop writing, and this one to stop reading.
    ///
    /// The upgrade has the lease and the options of this guard, unless told otherwise, and waits at the front of the
    /// queue for the other readers to leave. Two readers that wait to be upgraded would wait for each other: the second
    /// gets [`Error::Refused`] with the code `DEADLOCK`, or [`Error::Contention`] if it does not wait. The second
    /// should release its lock, and acquire it for writing.
    ///
    /// An upgrade begins when the last one is released for sure. If the last one was dropped, or the connection of its
    /// request broke, this takes a second or, while no server answers, up to 6 s. If its release failed, or if it
    /// [stays](Acquire::at_least), the next upgrade releases it. All of that is part of the wait; without a limit, or
    /// without waiting, it takes as long as an answer may ([`outage`](Acquire::outage)). The same goes for the first
    /// upgrade after [`downgrade`](Guard::downgrade).
    ///
    /// Takes two round trips: a [cap](Acquire::max_hold) of the reader ends the upgrade, too, and only a renewal says
    /// whether there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] unless this is a guard from [`Client::read`](crate::Client::read), of a single server. The
    /// awaited upgrade returns that error, too, if this guard is upgraded already; [`Error::Unreachable`] if the last
    /// upgrade is not released in time, or if it is a [`session`](Acquire::session) and its connection breaks before it
    /// is granted; and [`Error::Refused`] if the server refuses to release the last one.
    pub fn upgrade(&self) -> Result<Acquire, Error> {
        let hold = self.hold();
        if hold.mode != Mode::Read {
            return Err(Error::Invalid("only a reader can be upgraded".to_owned()));
        }
        let terms = Terms { upgrades: Some(hold.upgrades.clone()), ..self.beside(Mode::Write, Wait::ForEver)? };
        Ok(Acquire::new(self.backend().clone(), terms))
    }

    /// Turns a writer into a reader; the readers at the head of the queue are granted with it. No other writer comes
    /// between, so what was written stays as it is. The new guard has a token of its own. Takes three round trips, one of
    /// them because a cap of the writer ends the reader, too.
    ///
    /// # Errors
    ///
    /// An error drops this guard. [`Error::Lost`]: the lock was not held any more. [`Error::Invalid`] unless this is
    /// the only guard of an exclusive lock of a single server; one from [`upgrade`](Guard::upgrade) is released
    /// instead. [`Error::Unreachable`] or [`Error::Refused`].
    pub async fn downgrade(self) -> Result<Guard, Error> {
        let hold = self.hold();
        let is_writer = matches!(hold.mode, Mode::Exclusive | Mode::Write) && hold.upgrade.is_none();
        if !is_writer || self.entries().load(Ordering::Relaxed) > 1 {
            return Err(Error::Invalid("only the one guard of a writer can be downgraded".to_owned()));
        }
        let reader = Acquire::new(self.backend().clone(), self.beside(Mode::Read, Wait::Not)?);
        let reader = match reader.await {
            // A writer that still holds the lock gets a read hold at once.
            Err(Error::Contention) => return Err(Error::Lost),
            outcome => outcome?,
        };
        self.before(&reader);
        self.release().await?;
        Ok(reader)
    }

    /// Returns the terms of another hold of the same owner.
    fn beside(&self, mode: Mode, wait: Wait) -> Result<Terms, Error> {
        let hold = self.hold();
        if let Backend::Quorum(_) = self.backend() {
            return Err(Error::Invalid("a quorum neither upgrades nor downgrades".to_owned()));
        }
        Ok(Terms {
            naming: Naming::OfHold(hold.owner.clone()),
            lease: self.lease(),
            keep: hold.keep,
            named: hold.binding.as_ref().map(|binding| binding.session().clone()),
            replicas: hold.replicas,
            ..Terms::new(hold.names.clone(), mode, wait)
        })
    }
}
