//! The command and the options of a request for a lock. This file alone knows the options: it draws them, writes them
//! as words, and translates them for the core.

use std::num::NonZeroU32;

use dlock_core::{Command, Owner, Request, Token, Want};

use super::plain;
use crate::bytes::Bytes;
use crate::histories::drawn::{key, lease};
use crate::histories::values::{Asked, CLIENTS, ClientNo, KeyNo, Lease, OWNERS, SessionNo, Somebody};
use crate::histories::word::{Words, lease_words, name_of, session_words, words};

/// The command and the options of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    pub command: Command,
    pub want: Want,
    pub lease: Lease,
    /// `BLOCK`.
    pub blocks: bool,
    /// `SESSION`, or `SESSIONID` with the session in `named`.
    pub binds: bool,
    pub named: Option<SessionNo>,
    /// `MAXHOLD`, in ms. Not shorter than the lease.
    pub cap: Option<u64>,
    /// `MINTOKEN`, or 0 without it. In a history, the number of µs by which it is ahead of the clock.
    pub min_token: u64,
    /// `REQUEST`.
    pub id: Option<u8>,
}

impl How {
    /// Returns a command without options. `SACQUIRE` wants one permit of one.
    pub const fn new(command: Command) -> How {
        let want = match command {
            Command::Acquire | Command::Macquire | Command::Release => Want::ExclusiveOnce,
            Command::Racquire | Command::Wlock => Want::Exclusive,
            Command::Rlock => Want::Shared,
            Command::Sacquire => Want::Permits { permits: NonZeroU32::MIN, limit: NonZeroU32::MIN },
        };
        let lease = Lease::Own;
        How { command, want, lease, blocks: false, binds: false, named: None, cap: None, min_token: 0, id: None }
    }

    /// Returns a `SACQUIRE` of this number of permits, or of `limit` permits if that is less.
    pub fn permits(permits: u32, limit: u32) -> How {
        let number = |number| NonZeroU32::new(number).expect("not zero");
        let want = Want::Permits { permits: number(permits.min(limit)), limit: number(limit) };
        How { want, ..How::new(Command::Sacquire) }
    }

    /// Returns a `SACQUIRE … SLOT`.
    pub fn slot(limit: u32) -> How {
        let want = Want::Slot { limit: NonZeroU32::new(limit).expect("not zero") };
        How { want, ..How::new(Command::Sacquire) }
    }

    /// Returns the lease of a new hold if the command gives none: `default`, or the cap if that is shorter.
    pub fn default_lease(&self, default: u64) -> u64 {
        self.cap.map_or(default, |cap| cap.min(default))
    }

    /// Returns the command and the id of its request.
    pub fn asked(&self) -> Option<Asked> {
        self.id.map(|id| (self.command, id))
    }

    /// Draws a request: the client, the owner or `None` for `*`, different keys of database 0, and the options. A tool
    /// that cannot play an option changes the request afterwards.
    pub fn draw(bytes: &mut Bytes) -> (ClientNo, Option<Somebody>, Vec<KeyNo>, How) {
        let (keys, how) = match bytes.below(18) {
            0..=2 => (vec![key(bytes)], How::new(Command::Acquire)),
            3..=5 => (vec![key(bytes)], How::new(Command::Racquire)),
            6..=9 => (vec![key(bytes)], How::new(Command::Rlock)),
            10..=13 => {
                let (key, permits, limit) = (key(bytes), number(bytes, 3), number(bytes, 5));
                // The two numbers also decide about SLOT. Drawing one more byte would change the meaning of the corpora
                // that the fuzzers keep.
                let is_slot = permits > 1 && limit <= 3;
                (vec![key], if is_slot { How::slot(limit + 1) } else { How::permits(permits, limit) })
            }
            several => (SEVERAL[several - 14].to_vec(), How::new(Command::Macquire)),
        };
        // The bits of `flags`: whether the request waits, is bound, has an id, the owner `*`, a MINTOKEN, a MAXHOLD.
        let (who, flags) = (bytes.below(16), bytes.byte());
        // Some requests come from an owner that holds the lock, and upgrade it.
        let upgrades = how.command == Command::Racquire && who >= 8;
        let somebody = if upgrades { Somebody::Holder(who) } else { Somebody::Any(who % OWNERS) };
        let owner = (flags & 15 != 15).then_some(somebody);
        let binds = flags & 16 == 16 && !upgrades;
        // Sessions are chosen by bits of `who`, independently of the owner.
        let named = (binds && who & 4 == 4).then_some(who >> 3);
        let id = (flags & 32 == 32 && owner.is_some()).then_some(flags >> 7);
        let lease = lease(bytes);
        let lease = if binds { lease.for_session() } else { lease };
        let is_plain = !matches!(how.command, Command::Sacquire | Command::Macquire);
        let min_token = if flags & 64 == 64 && is_plain { 5_000 } else { 0 };
        // Bit 7 chooses the id. If there is no id, bit 7 decides about MAXHOLD.
        let cap = (flags & 32 == 0 && flags & 128 == 128).then(|| cap(lease, binds, who));
        let how = How { lease, blocks: flags & 3 != 0 || upgrades, binds, named, cap, min_token, id, ..how };
        (who % CLIENTS, owner, keys, how)
    }

    /// Returns the words of the command, not all in upper case. `block` is the limit of its wait, in ms.
    pub(super) fn words(&self, keys: &[KeyNo], owner: &[u8], block: u64) -> Words {
        let mut line = words(&format!("DLOCK.{}", self.command.name()));
        if self.command == Command::Macquire {
            line.extend(words(&keys.len().to_string()));
        }
        line.extend(keys.iter().map(|key| name_of(*key).as_bytes().to_vec()));
        line.push(owner.to_vec());
        if let Some(limit) = self.want.limit() {
            line.extend(words(&limit.to_string()));
        }
        match self.want {
            Want::Slot { .. } => line.extend(words("Slot")),
            // A single permit is the default.
            Want::Permits { permits, .. } if permits.get() > 1 => line.extend(words(&format!("PERMITS {permits}"))),
            Want::Permits { .. } | Want::ExclusiveOnce | Want::Exclusive | Want::Shared => {}
        }
        line.extend(lease_words(self.lease));
        if let Some(cap) = self.cap {
            line.extend(words(&format!("MaxHold {cap}")));
        }
        if self.min_token > 0 {
            line.extend(words(&format!("mintoken {}", self.min_token)));
        }
        if self.blocks {
            line.extend(words(&format!("block {block}")));
        }
        if let Some(id) = self.id {
            line.extend(words(&format!("REQUEST id-{id}")));
        }
        line.extend(session_words(self.binds, self.named));
        line
    }

    /// Returns the request with an absolute `MINTOKEN`, which a history has relative to the clock.
    pub(super) fn from(self, now_us: u64) -> How {
        How { min_token: if self.min_token == 0 { 0 } else { now_us + self.min_token }, ..self }
    }

    /// Returns the request in the form of the core, without a session.
    pub(super) fn request(&self, owner: Owner) -> Request {
        Request {
            id: self.asked().map(plain::request).map(Box::new),
            cap: self.cap.map(plain::lease),
            min_token: Token::new(self.min_token),
            ..Request::new(owner, self.want, plain::lease_choice(self.lease))
        }
    }
}

/// Returns a cap that is not shorter than the lease, and often equals it. The cap of a bound hold is 300 ms or more.
fn cap(lease: Lease, binds: bool, who: usize) -> u64 {
    let least = if binds { 300 } else { 10 };
    let given = match lease {
        Lease::Own => least,
        Lease::For(ms) | Lease::Until(ms) => ms.max(least),
    };
    given + (who as u64 / 2) * 25
}

/// Draws a number from 1 to `most`.
fn number(bytes: &mut Bytes, most: u16) -> u32 {
    u32::try_from(bytes.below(most)).unwrap_or(0) + 1
}

/// The keys of requests for several locks.
const SEVERAL: [&[KeyNo]; 4] = [&[0, 1], &[1, 0], &[0, 1, 2], &[2, 1]];
