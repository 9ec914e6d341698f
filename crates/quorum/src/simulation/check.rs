//! The rules of every run: no two clients believe at the same time that they hold the lock, and tokens rise.

use dlock_core::Mode;

/// The violation of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two clients hold the lock at once, at least one of them exclusively.
    Overlap,
    /// A token is not higher than that of an earlier hold.
    TokenOrder,
}

/// The highest tokens of all holds so far.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    exclusive: u64,
    shared: u64,
}

impl Tokens {
    /// Records that a client now holds the lock. Shared holds need no order among each other.
    pub fn acquired(&mut self, mode: Mode, token: u64) -> Option<Violation> {
        let before = match mode {
            Mode::Exclusive => self.exclusive.max(self.shared),
            Mode::Shared => self.exclusive,
        };
        match mode {
            Mode::Exclusive => self.exclusive = self.exclusive.max(token),
            Mode::Shared => self.shared = self.shared.max(token),
        }
        (token <= before).then_some(Violation::TokenOrder)
    }

    /// Returns whether a conflicting hold with a higher token has begun, so that the hold with this token must be over.
    pub fn is_outdated(&self, mode: Mode, token: u64) -> bool {
        match mode {
            Mode::Exclusive => self.exclusive.max(self.shared) > token,
            Mode::Shared => self.exclusive > token,
        }
    }
}

/// The sums of a run, or of many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Acquisitions that got the lock.
    pub held: u64,
    /// Acquisitions that were refused.
    pub contended: u64,
    /// Acquisitions that too few servers answered.
    pub too_few: u64,
    /// Holds that were lost before their client released them.
    pub lost: u64,
    /// Holds that were still held when their client released them.
    pub released: u64,
    /// Crashes of servers that forget all their locks.
    pub crashes_with_loss: u64,
    /// Calls that were not sent, because their server was too young to count.
    pub young: u64,
    /// Calls of clients to servers.
    pub calls: u64,
    /// Attempts beyond the first of an acquisition that got the lock.
    pub attempts: u64,
    /// The most attempts of an acquisition that got the lock.
    pub most_attempts: u32,
    /// Holds that began although an earlier client waited in the queue of server 0.
    pub overtaken: u64,
    /// The longest time from the start of an acquisition to its hold, µs.
    pub longest_wait: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.held += other.held;
        self.contended += other.contended;
        self.too_few += other.too_few;
        self.lost += other.lost;
        self.released += other.released;
        self.crashes_with_loss += other.crashes_with_loss;
        self.young += other.young;
        self.calls += other.calls;
        self.attempts += other.attempts;
        self.most_attempts = self.most_attempts.max(other.most_attempts);
        self.overtaken += other.overtaken;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}
