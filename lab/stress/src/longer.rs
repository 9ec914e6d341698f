//! Steps that have more than one command, or that have an effect after the reply.

use std::time::{Duration, Instant};

use dlock_core::Mode;
use dlock_testkit::histories::leave::{Fence, Renewal};
use dlock_testkit::histories::word::{name_of, words};
use dlock_testkit::histories::{KeyNo, Lease, Who};
use dlock_testkit::lock::info_reply;
use dlock_testkit::redis::Value as Answer;
use dlock_testkit::text_of;

use crate::judge::{Before, same};
use crate::model::{Reply, db_of};
use crate::round::{Place, Round, SOON, When, connect};
use crate::step::{Call, Step};

impl Round {
    pub(super) fn transaction(&mut self, who: usize, calls: &[Call], before: Before) -> Result<When, String> {
        self.send(who, &words("MULTI"))?;
        same("the reply", self.connection(who)?.reply(), Answer::Okay)?;
        let mut expected = Vec::new();
        for call in calls {
            expected.push(self.expect(who, call, Place::Transaction)?);
            let line = call.words(&self.model, 0);
            self.send(who, &line)?;
            same("the reply", text_of(&self.connection(who)?.reply()).as_str(), "QUEUED")?;
        }
        expected.iter().for_each(|reply| self.count(reply));
        self.run(who, &words("EXEC"), Reply::All(expected), before)
    }

    /// Sends a request whose wait, if there is one, ends after a moment.
    pub(super) fn call_briefly(&mut self, who: usize, call: &Call, before: Before) -> Result<When, String> {
        let expected = self.expect(who, call, Place::Connection)?;
        let line = call.words(&self.model, MOMENT_MS);
        if expected != Reply::Later {
            return self.run(who, &line, expected, before);
        }
        self.send(who, &line)?;
        let client = self.client(who)?;
        // A repeat that takes over the place of its first copy may be granted at once, and does not wait then.
        if self.model.is_waiting(client) {
            self.model.give_up(client, Reply::Nil);
            self.reach("wait that timed out");
        }
        Ok(When::Soon)
    }

    /// Lets a key expire after a moment. For the model, the key is deleted.
    pub(super) fn expire(&mut self, who: usize, key: KeyNo, before: Before) -> Result<When, String> {
        let expected = self.model.delete(key);
        self.run(who, &words(&format!("PEXPIRE {} {MOMENT_MS}", name_of(key))), expected, before)?;
        Ok(When::Soon)
    }

    /// Lets a hold lapse after a moment. If `persists`, the key stays: it loses its TTL before.
    pub(super) fn lapse(
        &mut self,
        who: usize,
        key: KeyNo,
        owner: Who,
        mode: Mode,
        persists: bool,
        before: Before,
    ) -> Result<When, String> {
        let ms = if persists { LONG_MOMENT_MS } else { MOMENT_MS };
        let (lease, fence) = (Lease::For(ms), Fence::Any);
        let renewal = Renewal { client: 0, owner, mode: Some(mode), lease, fence, binds: false, named: None };
        let call = Call::Renew(key, renewal);
        let expected = self.expect(who, &call, Place::Connection)?;
        let line = call.words(&self.model, 0);
        if persists {
            // All commands are sent before any reply is read, so that the lease does not end between them. The first
            // three replies are `OK` and twice `QUEUED`.
            let expected = Reply::All(vec![expected, self.model.set_ttl(key, None)]);
            self.send(who, &words("MULTI"))?;
            self.send(who, &line)?;
            self.send(who, &words(&format!("PERSIST {}", name_of(key))))?;
            self.send(who, &words("EXEC"))?;
            for _ in 0..3 {
                self.connection(who)?.reply();
            }
            self.answered(who, &expected, before)?;
        } else {
            self.run(who, &line, expected, before)?;
        }
        self.model.lapse(key, owner, mode);
        self.reach("lapsed");
        Ok(When::Soon)
    }

    /// Gives a key an expiry (`PEXPIRE`) that is earlier than the lease of its hold, and has the watchdog renew the
    /// hold: only a command may move the expiry of a key.
    pub(super) fn watch(&mut self, who: usize, key: KeyNo, owner: Who, before: Before) -> Result<When, String> {
        let (mode, lease) = (Some(Mode::Shared), Lease::For(SHORT_LEASE_MS));
        let bind =
            Call::Renew(key, Renewal { client: 0, owner, mode, lease, fence: Fence::Any, binds: true, named: None });
        self.transaction(who, &[bind, Call::SetTtl(key, Some(EARLY_MS))], before)?;
        self.hear(before)?;
        let owner_text = self.model.owner(owner).unwrap_or_default();
        let line = [b"DLOCK.INFO".to_vec(), name_of(key).into(), b"OWNER".to_vec(), owner_text];
        self.looker.ok(format!("SELECT {}", db_of(key)));
        let (deadline, mut least) = (Instant::now() + SOON, i64::MAX);
        loop {
            let info = info_reply(&mut self.looker, &line).ok_or("the hold was lost")?;
            let hold = info.holds().iter().find(|hold| hold.mode == "shared").ok_or("the hold was lost")?;
            if hold.ttl > least {
                break;
            }
            least = hold.ttl;
            if Instant::now() > deadline {
                return Err(format!("the watchdog does not extend {hold:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.look(before, When::Now)?;
        self.reach("the watchdog met an early expiry");
        // The lease becomes long again, so that the hold does not lapse on a busy machine.
        let long = Renewal {
            client: 0,
            owner,
            mode,
            lease: Lease::For(LONG_LEASE_MS),
            fence: Fence::Any,
            binds: false,
            named: None,
        };
        let call = Call::Renew(key, long);
        let expected = self.expect(who, &call, Place::Connection)?;
        let line = call.words(&self.model, 0);
        self.run(who, &line, expected, before)
    }

    /// Ends a connection, and opens another in its place. If `by_server`, the server kills the connection first.
    pub(super) fn disconnect(&mut self, who: usize, by_server: bool) -> Result<When, String> {
        let client = self.client(who)?;
        let bound = self.model.holds().any(|(_, hold)| hold.session == Some(client));
        self.reach(match (self.model.is_waiting(client), bound) {
            (true, _) => "a waiter's connection ended",
            (false, true) if self.model.is_paused => "a session ended in a pause",
            (false, true) => "a session ended",
            (false, false) => "a connection ended",
        });
        if by_server {
            self.looker.run(format!("CLIENT KILL ID {client}"));
        }
        let new = connect(self.port, who);
        self.story.push(format!("client {client} is gone, client {} comes", new.id));
        if let Some(place) = self.connections.get_mut(who) {
            // The old connection is closed here.
            *place = new;
        }
        self.model.disconnect(client);
        Ok(When::Soon)
    }

    pub(super) fn unblock(&mut self, who: usize, with_error: bool) -> Result<When, String> {
        let client = self.client(who)?;
        // In a pause, an earlier step may have ended the connection of the waiter.
        if !self.model.is_waiting(client) {
            return Ok(When::Now);
        }
        let command = format!("CLIENT UNBLOCK {client} {}", if with_error { "ERROR" } else { "TIMEOUT" });
        self.story.push(command.clone());
        same("the reply", self.looker.int(command), 1)?;
        self.model.give_up(client, if with_error { Reply::Error("UNBLOCKED ") } else { Reply::Nil });
        Ok(When::Soon)
    }

    /// Pauses the server, plays the steps `meanwhile`, and ends the pause. Then the server does the work that was due
    /// in the pause, and after that runs the command `kept`, which was sent in the pause.
    pub(super) fn pause(
        &mut self,
        meanwhile: &[Step],
        kept: Option<&(usize, Call)>,
        before: Before,
    ) -> Result<When, String> {
        self.story.push("CLIENT PAUSE WRITE".to_owned());
        self.looker.ok(format!("CLIENT PAUSE {} WRITE", SOON.as_millis()));
        self.model.is_paused = true;
        meanwhile.iter().try_for_each(|step| self.step(step))?;
        if let Some((who, call)) = kept {
            let line = call.words(&self.model, 0);
            self.send(*who, &line)?;
        }
        self.story.push("CLIENT UNPAUSE".to_owned());
        self.looker.ok("CLIENT UNPAUSE");
        self.catches_up_until = Instant::now() + CATCH_UP;
        self.model.resume();
        self.reach("pause");
        if let Some((who, call)) = kept {
            let expected = self.expect(*who, call, Place::Connection)?;
            self.model.serve();
            self.answered(*who, &expected, before)?;
        }
        Ok(When::Soon)
    }
}

/// A lease, a wait or an expiry that the step outlives.
const MOMENT_MS: u64 = 25;
/// A lease that the step outlives, and that is long enough for one more command.
const LONG_MOMENT_MS: u64 = 200;
/// A lease that the watchdog renews soon, after a third of it, and that does not end before, even on a busy machine.
const SHORT_LEASE_MS: u64 = 3000;
/// A lease that no step outlives.
const LONG_LEASE_MS: u64 = 1_000_000;
/// An expiry that is earlier than the end of every lease but the short one.
const EARLY_MS: u64 = 121_000;
/// How long after a pause the server may serve events late: every 20 ms, the module looks whether the pause is over.
const CATCH_UP: Duration = Duration::from_secs(1);
