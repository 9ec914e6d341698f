//! The commands of the module, who waits, whose turn it is, who would wait for ever.

use dlock_core::{Mode, Reentry, Refusal};
use dlock_testkit::histories::history;
use dlock_testkit::histories::naive::{self, Enter, excludes};

use super::{Asked, Client, Fence, Key, Leave, Line, Lock, Model, Owner, Reply, UNKNOWN, Value, What};

/// In ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lease {
    Own,
    For(u64),
    Until(u64),
}

impl Lease {
    fn at(self, now: u64) -> history::Lease {
        match self {
            Lease::Own => history::Lease::Own,
            Lease::For(ms) => history::Lease::For(ms),
            Lease::Until(deadline) => history::Lease::Until(deadline.cast_signed() - now.cast_signed()),
        }
    }
}

/// `ACQUIRE`, `RACQUIRE`, `RLOCK` or `WLOCK`.
#[derive(Clone, Debug)]
pub struct Ask {
    pub what: What,
    pub owner: Owner,
    pub is_made_up: bool,
    pub mode: Mode,
    pub reentry: Reentry,
    pub lease: Lease,
    pub blocks: bool,
    pub binds: bool,
    pub request: Option<u8>,
}

impl Ask {
    fn at(&self, now: u64, client: Client) -> Enter<Owner> {
        Enter {
            owner: self.owner.clone(),
            mode: self.mode,
            reentry: self.reentry,
            lease: self.lease.at(now),
            request: self.request.map(|id| Asked { what: self.what, id }),
            session: self.binds.then_some(client),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Renew {
    pub owner: Owner,
    pub mode: Option<Mode>,
    pub lease: Lease,
    pub fence: Fence,
    pub binds: bool,
}

impl Model {
    /// A request to enter. Where blocking is denied, `BLOCK` is ignored.
    pub fn enter(&mut self, now: u64, client: Client, key: Key, ask: &Ask) -> Reply {
        if self.keys.get(&key) == Some(&Value::Text) {
            return WRONG_TYPE;
        }
        self.serve(now, key);
        let enter = ask.at(now, client);
        let answer = self.with(key, |line, lock| line.ask(lock, now, enter.clone()));
        let reply = match answer {
            naive::Reply::Token(token, _) | naive::Reply::Replayed(Some(token)) if ask.is_made_up => {
                Reply::FreshOwner(token)
            }
            naive::Reply::Nil(Some(Refusal::Owned)) if ask.blocks => DEADLOCK,
            naive::Reply::Nil(Some(Refusal::Held)) if ask.blocks => self.wait(now, client, key, enter),
            answer => told(answer),
        };
        self.drop_empty(key);
        reply
    }

    fn wait(&mut self, now: u64, client: Client, key: Key, enter: Enter<Owner>) -> Reply {
        let line = self.lines.entry(key).or_default();
        if let Some(place) = line.repeated(&enter)
            && let Some(waiter) = line.0.get_mut(place)
        {
            let first = std::mem::replace(&mut waiter.ticket, client);
            (waiter.enter, waiter.asked) = (enter, now);
            self.told.push((first, Reply::Nil));
            return Reply::Later;
        }
        if self.max_waiters > 0 && self.waiters() >= self.max_waiters {
            return Reply::Error("ERR max number of waiters reached");
        }
        let owner = enter.owner.clone();
        let waits_elsewhere = self.waits_of(&owner).next().is_some();
        if !self.with(key, |line, lock| line.join(lock, now, enter, client)) {
            return DEADLOCK;
        }
        if !waits_elsewhere && self.waits_for_itself(&owner) {
            self.leave_lines(client);
            return DEADLOCK;
        }
        Reply::Later
    }

    /// Whether the owner waits for itself, through those it waits for and those they wait for.
    fn waits_for_itself(&self, owner: &Owner) -> bool {
        let mut found: Vec<Owner> = self.in_the_way_of(owner);
        let mut at = 0;
        while let Some(next) = found.get(at).cloned() {
            if next == *owner {
                return true;
            }
            for more in self.in_the_way_of(&next) {
                if !found.contains(&more) {
                    found.push(more);
                }
            }
            at += 1;
        }
        false
    }

    /// The other owners this one waits for: holders, and those ahead in line. Who waits twice may go on elsewhere.
    fn in_the_way_of(&self, owner: &Owner) -> Vec<Owner> {
        let waits: Vec<(Key, &Line, usize)> = self.waits_of(owner).collect();
        let [(key, line, place)] = waits.as_slice() else { return Vec::new() };
        let mode = line.waits_for(*place);
        let holders = self.holds(*key).iter().filter(|hold| excludes(mode, hold.mode)).map(|hold| &hold.owner);
        let ahead = line.0.iter().take(place + 1).map(|waiter| &waiter.enter.owner);
        holders.chain(ahead).filter(|other| *other != owner).cloned().collect()
    }

    fn waits_of(&self, owner: &Owner) -> impl Iterator<Item = (Key, &Line, usize)> {
        self.lines.iter().flat_map(move |(key, line)| {
            let places = line.0.iter().enumerate().filter(move |(_, waiter)| waiter.enter.owner == *owner);
            places.map(move |(at, _)| (*key, line, at))
        })
    }

    /// `RELEASE`.
    pub fn release(&mut self, now: u64, key: Key, leave: &Leave) -> Reply {
        if self.keys.get(&key) == Some(&Value::Text) {
            return WRONG_TYPE;
        }
        self.serve(now, key);
        let reply = told(self.with(key, |_, lock| lock.release(now, leave.clone())));
        self.drop_empty(key);
        self.serve(now, key);
        reply
    }

    /// `RENEW`.
    pub fn renew(&mut self, now: u64, client: Client, key: Key, renew: &Renew) -> Reply {
        let Renew { owner, mode, lease, fence, binds } = renew;
        if self.keys.get(&key) == Some(&Value::Text) {
            return WRONG_TYPE;
        }
        self.serve(now, key);
        let reply = told(self.with(key, |_, lock| {
            let reply = lock.renew(now, owner, *mode, lease.at(now), *fence);
            let is_meant = |hold: &&mut super::Hold| {
                let is_named = hold.owner == *owner && mode.is_none_or(|mode| mode == hold.mode);
                is_named && !matches!(fence, Fence::Is(token) if *token != hold.token)
            };
            for hold in lock.holds.iter_mut().filter(is_meant).filter(|_| *binds) {
                hold.session = Some(client);
            }
            reply
        }));
        let known: Vec<u64> = self.holds(key).iter().map(|hold| hold.token).filter(|token| *token < UNKNOWN).collect();
        self.seen.extend(known);
        self.drop_empty(key);
        reply
    }

    /// Answers everybody in line whose turn it is.
    pub fn serve(&mut self, now: u64, key: Key) {
        if self.keys.get(&key) == Some(&Value::Text) {
            let line = self.lines.remove(&key).unwrap_or_default();
            self.told.extend(line.0.into_iter().map(|waiter| (waiter.ticket, WRONG_TYPE)));
            return;
        }
        let served = self.with(key, |line, lock| line.serve(lock, now));
        self.told.extend(served.into_iter().map(|(waiter, reply)| (waiter.ticket, told(reply))));
        self.drop_empty(key);
    }

    /// Serves every line.
    pub fn serve_all(&mut self, now: u64) {
        let keys: Vec<Key> = self.lines.keys().copied().collect();
        keys.into_iter().for_each(|key| self.serve(now, key));
    }

    /// A client leaves the line it is in, with this answer.
    pub fn give_up(&mut self, now: u64, client: Client, reply: Reply) {
        self.leave_lines(client);
        self.told.push((client, reply));
        self.serve_all(now);
    }

    pub fn leave_lines(&mut self, client: Client) {
        self.lines.values_mut().for_each(|line| line.0.retain(|waiter| waiter.ticket != client));
    }

    /// The line and the lock of a key, which becomes a lock if it was nothing. It is no text.
    fn with<T>(&mut self, key: Key, act: impl FnOnce(&mut Line, &mut Lock) -> T) -> T {
        let empty = || Value::Lock(Lock { default_lease: DEFAULT_LEASE, ..Lock::default() });
        let Value::Lock(lock) = self.keys.entry(key).or_insert_with(empty) else { unreachable!("it is no text") };
        lock.last_token = self.last;
        let done = act(self.lines.entry(key).or_default(), lock);
        self.last = lock.last_token;
        done
    }
}

/// What a client is answered, of what the naive lock says.
fn told(reply: naive::Reply) -> Reply {
    match reply {
        naive::Reply::Token(token, _) | naive::Reply::Replayed(Some(token)) => Reply::Token(token),
        naive::Reply::Replayed(None) | naive::Reply::Zero => Reply::Integer(0),
        naive::Reply::One => Reply::Integer(1),
        naive::Reply::Nil(_) => Reply::Nil,
        naive::Reply::Ambiguous => Reply::Error("AMBIGUOUS "),
    }
}

/// What the server is started with, in ms.
const DEFAULT_LEASE: u64 = 900_000;
pub const WRONG_TYPE: Reply = Reply::Error("WRONGTYPE ");
const DEADLOCK: Reply = Reply::Error("DEADLOCK ");
