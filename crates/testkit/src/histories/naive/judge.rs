//! Decides whether holds allow a request and what a waiter gets at its turn, and grants locks.

use dlock_core::{Mode, Want};

use super::{Hold, MIN_BOUND, Naive, Request, Turn, Verdict};
use crate::histories::{How, KeyNo};

impl Naive {
    /// Returns whether the holds of the locks allow a request, without regard to waiters.
    pub fn judge(&self, request: &Request) -> Verdict {
        match request.keys.as_slice() {
            [key] => self.judge_one(request, *key),
            keys => self.judge_all(request, keys),
        }
    }

    fn judge_one(&self, request: &Request, key: KeyNo) -> Verdict {
        let Request { owner, how: How { want, .. }, .. } = request;
        let asked = &request.how.asked();
        let (exclusive, shared) = (self.mine(key, *owner, Mode::Exclusive), self.mine(key, *owner, Mode::Shared));
        let mine = if want.mode() == Mode::Exclusive { exclusive } else { shared };
        if let Some(hold) = mine.filter(|hold| asked.is_some() && hold.request == *asked) {
            return Verdict::Recorded(hold.token);
        }
        let others = |mode| self.live(key).any(|hold| hold.owner != *owner && hold.mode == mode);
        let (writer, reader) = (others(Mode::Exclusive), others(Mode::Shared));
        let new = if mine.is_some() { Verdict::Again } else { Verdict::Enters };
        match want {
            Want::ExclusiveOnce if exclusive.is_some() || shared.is_some() => Verdict::Owned,
            Want::Exclusive if exclusive.is_some() => Verdict::Again,
            Want::ExclusiveOnce | Want::Exclusive if writer || reader => Verdict::Held,
            Want::ExclusiveOnce | Want::Exclusive => Verdict::Enters,
            Want::Shared if shared.is_some() => Verdict::Again,
            Want::Shared if writer => Verdict::Held,
            Want::Shared => Verdict::Enters,
            Want::Permits { limit, .. } | Want::Slot { limit } => {
                let (permits, limit) = (u64::from(want.entries()), u64::from(limit.get()));
                let own = shared.map_or(0, |hold| hold.count);
                let all: u64 = self.live(key).filter(|hold| hold.mode == Mode::Shared).map(|hold| hold.count).sum();
                if own + permits > limit {
                    Verdict::OverLimit
                } else if own > 0 && matches!(want, Want::Slot { .. }) {
                    Verdict::Owned
                } else if writer || all + permits > limit {
                    Verdict::Held
                } else {
                    new
                }
            }
        }
    }

    fn judge_all(&self, request: &Request, keys: &[KeyNo]) -> Verdict {
        let (owner, asked) = (&request.owner, request.how.asked());
        let record = |key: &KeyNo| {
            let hold = self.mine(*key, *owner, Mode::Exclusive)?;
            (asked.is_some() && hold.request == asked).then_some(hold.token)
        };
        let records: Vec<u64> = keys.iter().filter_map(record).collect();
        if records.len() == keys.len() {
            return Verdict::Recorded(records.into_iter().max().expect("at least one key"));
        }
        if keys.iter().any(|key| self.live(*key).any(|hold| hold.owner == *owner)) {
            Verdict::Owned
        } else if keys.iter().any(|key| self.live(*key).next().is_some()) {
            Verdict::Held
        } else {
            Verdict::Enters
        }
    }

    /// Returns whether a request overtakes the waiters, because its owner holds the lock.
    pub(super) fn may_overtake(&self, request: &Request, verdict: Verdict) -> bool {
        let [key] = *request.keys.as_slice() else { return false };
        let (owner, has) = (request.owner, |mode| self.mine(key, request.owner, mode).is_some());
        let is_alone = self.live(key).all(|hold| hold.owner == owner);
        match request.how.want {
            Want::ExclusiveOnce => false,
            Want::Exclusive => verdict == Verdict::Again || (has(Mode::Shared) && is_alone),
            Want::Shared => verdict == Verdict::Again || has(Mode::Exclusive),
            Want::Permits { .. } | Want::Slot { .. } => has(Mode::Exclusive),
        }
    }

    /// Returns whether a request for permits comes from the only holder of the lock, which would wait for itself.
    pub(super) fn is_only_holder_of_permits(&self, request: &Request) -> bool {
        let key = request.keys[0];
        let is_semaphore = matches!(request.how.want, Want::Permits { .. });
        let has = |mode| self.mine(key, request.owner, mode).is_some();
        let is_alone = self.live(key).all(|hold| hold.owner == request.owner);
        is_semaphore && has(Mode::Shared) && !has(Mode::Exclusive) && is_alone
    }

    /// Returns what a waiter gets if the server serves it now.
    pub fn turn(&self, waiter: &Request) -> Turn {
        if waiter.session.is_some_and(|session| !self.is_open(session)) {
            return Turn::NoSession;
        }
        let is_head = |key: &KeyNo| self.queue(*key).first().is_some_and(|head| head.ticket == waiter.ticket);
        if !waiter.keys.iter().all(is_head) {
            return Turn::NotYet;
        }
        let verdict = self.judge(waiter);
        let own = match verdict {
            Verdict::Held | Verdict::Owned | Verdict::OverLimit => return Turn::NotYet,
            Verdict::Again => {
                self.mine(waiter.keys[0], waiter.owner, waiter.how.want.mode()).map_or(0, |hold| hold.lease)
            }
            Verdict::Enters => waiter.how.default_lease(self.default_lease),
            Verdict::Recorded(token) => {
                let is_short = |key: &KeyNo| {
                    self.mine(*key, waiter.owner, waiter.how.want.mode()).is_some_and(|hold| hold.lease < MIN_BOUND)
                };
                let is_refused = waiter.how.binds && waiter.keys.iter().any(is_short);
                return if is_refused { Turn::SessionLease } else { Turn::Recorded(token) };
            }
        };
        match waiter.how.lease.resolve(self.now(), own) {
            None => Turn::LeasePassed,
            Some((lease, _)) if waiter.how.binds && lease < MIN_BOUND => Turn::SessionLease,
            Some(_) => Turn::Enters(verdict),
        }
    }

    /// Grants a request. Returns the token.
    pub fn enter(&mut self, request: &Request) -> u64 {
        let (now, fresh, mode) = (self.now(), self.fresh_token(&request.how), request.how.want.mode());
        let count = u64::from(request.how.want.entries());
        let mut token = fresh;
        for key in request.keys.clone() {
            let old = self.mine(key, request.owner, mode).cloned();
            let hold = match old {
                None => {
                    self.counts.grants += 1;
                    let default = request.how.default_lease(self.default_lease);
                    let (lease, deadline) = request.how.lease.resolve(now, default).expect("a deadline ahead");
                    // The cap of the owner's hold in the other mode counts, too.
                    let other = self.live(key).find(|hold| hold.owner == request.owner).and_then(|hold| hold.cap);
                    let cap = request.how.cap.map(|cap| now + cap).into_iter().chain(other).min();
                    let deadline = cap.map_or(deadline, |cap| cap.min(deadline));
                    let (owner, asked) = (request.owner, request.how.asked());
                    self.last_token = fresh;
                    Hold {
                        owner,
                        mode,
                        count,
                        lease,
                        deadline,
                        cap,
                        slot: matches!(request.how.want, Want::Slot { .. }).then(|| self.free_slot(key)),
                        token: fresh,
                        request: asked,
                        session: None,
                        ended: None,
                    }
                }
                Some(old) => {
                    self.counts.reentries += 1;
                    let (lease, deadline) = request.how.lease.resolve(now, old.lease).expect("a deadline ahead");
                    token = old.token;
                    let (lease, deadline) = (lease.max(old.lease), old.up_to_cap(deadline.max(old.end())));
                    let (count, request) = (old.count + count, request.how.asked().or(old.request));
                    Hold { count, lease, deadline, request, ended: None, ..old }
                }
            };
            self.put(key, hold);
            self.keys[key].early = None;
        }
        self.bind(request);
        token
    }

    /// Returns the lowest slot number that no live hold has.
    fn free_slot(&self, key: KeyNo) -> u32 {
        (0..).find(|slot| self.live(key).all(|hold| hold.slot != Some(*slot))).expect("a free number")
    }

    /// Returns the slot number in the answer to a granted request. `None`: the request asks for no slot. `Some(None)`:
    /// the hold has no slot.
    pub fn slot_answer(&self, request: &Request) -> Option<Option<u32>> {
        let Want::Slot { .. } = request.how.want else { return None };
        Some(self.mine(request.keys[0], request.owner, Mode::Shared)?.slot)
    }
}
