//! Plays a history on the core, on a replica and on the model, and compares all three after every step.

use std::collections::BTreeSet;

use dlock_core::{
    Acquire, Acquired, Applied, Change, Effect, Entry, Lock, LockMode, Mode, Owner, Release, Released, Renew,
    RenewToken, Renewed, TokenClock, UnixMs, Waiters, decode_effect, decode_lock, encode_effect, encode_lock,
};

use super::history::{Lease, OWNERS, Somebody, Step, TokenPick, TokenRule, Who};
use super::naive::{Asked, DEFAULT_LEASE, Enter, Fence, Hold, How, Leave, Naive, Reply, What};
use super::plain::{by_token, choice, entering, lease_of, owner, request_of, token_of};
use super::quick;
use super::reached::Reached;

/// A primary, its replica, and the model of both.
pub struct World {
    now: u64,
    primary: Node,
    replica: Node,
    naive: Naive,
    owners: Vec<Owner>,
    /// Of the stored holds.
    tokens: BTreeSet<u64>,
    /// The last request that had an id.
    sent: Option<Sent>,
    reached: Reached,
}

#[derive(Clone, Copy)]
enum Sent {
    Enter(Enter),
    Leave(Leave),
}

/// The lock on one server.
#[derive(Clone, Debug, Default)]
struct Node {
    lock: Lock,
    end: Option<UnixMs>,
    tokens: TokenClock,
}

impl World {
    /// Plays the history; panics where the three do not agree.
    pub fn play(steps: &[Step]) -> Reached {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.compare();
        }
        world.reached
    }

    fn new() -> World {
        World {
            now: BEGIN_MS,
            primary: Node::default(),
            replica: Node::default(),
            naive: Naive::default(),
            owners: (0..OWNERS).map(owner).collect(),
            tokens: BTreeSet::new(),
            sent: None,
            reached: Reached::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => self.now += ms,
            Step::ClockBack(ms) => self.now -= ms,
            Step::Acquire { owner, mode, reentry, lease, request } => {
                let (owner, mode, reentry, lease) = (*owner, *mode, *reentry, *lease);
                let request = request.map(|id| Asked { what: entering(mode, reentry), id });
                self.acquire(Enter { owner, mode, reentry, lease, request, session: None });
            }
            Step::Release { owner, mode, entries, token, request } => {
                let owner = self.find(*owner);
                let token = token.map(|pick| self.pick(owner, pick));
                let request = request.map(|id| Asked { what: What::Release, id });
                self.release(Leave { owner, mode: *mode, entries: *entries, token, request });
            }
            Step::Renew { owner, mode, lease, token } => {
                let owner = self.find(*owner);
                let fence = match token {
                    TokenRule::Any => Fence::Any,
                    TokenRule::Is(pick) => Fence::Is(self.pick(owner, *pick)),
                    TokenRule::AtLeast(pick, more) => Fence::AtLeast(self.pick(owner, *pick) + more),
                };
                self.renew(owner, *mode, *lease, fence);
            }
            Step::Expire(ms) => self.set_end(Some(self.now + ms)),
            Step::Persist => self.set_end(None),
            Step::KeyEnds if self.naive.is_ended(self.now) => self.delete(),
            Step::KeyEnds => {}
            Step::Delete => self.delete(),
            Step::Resend => self.resend(),
            Step::Waiters(waiters) => self.naive.waiters = *waiters,
            Step::Sweep => {
                let lapsed = self.naive.lapsed(self.now) as u64;
                self.naive.sweep(self.now);
                let applied =
                    self.apply(Effect { clock: self.clock(), change: Change::Sweep, waiters: self.naive.waiters });
                assert_eq!((applied.lapsed, applied.is_visible), (lapsed, lapsed > 0));
            }
            Step::Reload => self.primary.lock = reloaded(&self.primary.lock),
            Step::Resync => self.replica.lock = reloaded(&self.primary.lock),
        }
    }

    fn acquire(&mut self, enter: Enter) -> Reply {
        self.sent = enter.request.map(|_| Sent::Enter(enter)).or(self.sent);
        let Enter { owner: who, mode, reentry, lease, request, .. } = enter;
        let before = self.naive.clone();
        let expected = self.naive.acquire(self.now, enter);
        let id = request.map(request_of);
        let request =
            Acquire { owner: &self.owners[who], mode, reentry, lease: choice(self.now, lease), request: id.as_ref() };
        let fresh = self.primary.tokens.next(self.now * 1000);
        let decided = self.primary.lock.acquire(self.clock(), &request, lease_of(DEFAULT_LEASE), fresh);
        quick::check_entry(&self.primary.lock, self.clock(), &request, (lease_of(DEFAULT_LEASE), fresh), &decided);
        let reply = match decided {
            Acquired::Granted { token, entry, effect } => {
                self.apply_once(effect, &before);
                let how = match entry {
                    Entry::First => How::New,
                    Entry::Again => How::Again,
                };
                Reply::Token(token.get(), how)
            }
            Acquired::Replayed(hold) => Reply::Replayed(Some(hold.token.get())),
            Acquired::Refused(refusal) => Reply::Nil(Some(refusal)),
        };
        assert_eq!(reply, expected);
        self.reached.acquired(reply);
        reply
    }

    /// A client that did not get the answer asks again. What was answered then is answered again, and again.
    fn resend(&mut self) {
        let Some(sent) = self.sent else { return };
        let [first, second] = [(); 2].map(|()| match sent {
            Sent::Enter(enter) => self.acquire(enter),
            Sent::Leave(leave) => self.release(leave),
        });
        match first {
            Reply::Token(token, _) => assert_eq!(second, Reply::Replayed(Some(token))),
            Reply::Zero => assert_eq!(second, Reply::Replayed(None)),
            // There is nothing left to record it on. Who has another hold gives that one up.
            Reply::One => {}
            Reply::Replayed(_) | Reply::Nil(_) | Reply::Ambiguous => assert_eq!(second, first),
        }
    }

    fn release(&mut self, leave: Leave) -> Reply {
        self.sent = leave.request.map(|_| Sent::Leave(leave)).or(self.sent);
        let Leave { owner: who, mode, entries, token, request } = leave;
        let before = self.naive.clone();
        let expected = self.naive.release(self.now, leave);
        let id = request.map(request_of);
        let request =
            Release { owner: &self.owners[who], mode, entries, token: token.map(token_of), request: id.as_ref() };
        // Without a lapsed hold the command itself may be replicated: it says the same by any clock. It does not say
        // that somebody waits.
        let says_it_all = !self.primary.lock.has_lapsed(self.clock()) && self.naive.waiters == Waiters::None;
        let verbatim = says_it_all.then(|| self.replica.lock.release(UnixMs::ZERO, &request));
        let decided = self.primary.lock.release(self.clock(), &request);
        quick::check_release(&self.primary.lock, self.clock(), &request, &decided);
        let (reply, effect) = match decided {
            Released::NotHeld => (Reply::Nil(None), None),
            Released::Ambiguous => (Reply::Ambiguous, None),
            Released::Replayed => (Reply::Replayed(None), None),
            Released::Partly(effect) => (Reply::Zero, Some(effect)),
            Released::Fully(effect) => (Reply::One, Some(effect)),
        };
        assert_eq!(reply, expected);
        self.reached.released(reply);
        let Some(effect) = effect else { return reply };
        if let Some(released) = verbatim {
            self.reached.count("verbatim release");
            self.compare_verbatim(&effect, released);
        }
        self.apply_once(effect, &before);
        reply
    }

    fn renew(&mut self, who: Who, mode: Option<Mode>, lease: Lease, fence: Fence) {
        let before = self.naive.clone();
        let expected = self.naive.renew(self.now, &who, mode, lease, fence);
        let token = match fence {
            Fence::Any => RenewToken::Any,
            Fence::Is(token) => RenewToken::Is(token_of(token)),
            Fence::AtLeast(token) => RenewToken::AtLeast(token_of(token)),
        };
        let request = Renew { owner: &self.owners[who], mode, lease: choice(self.now, lease), token };
        let decided = self.primary.lock.renew(self.clock(), &request);
        quick::check_renewal(&self.primary.lock, self.clock(), &request, &decided);
        let reply = match decided {
            Renewed::NotHeld => Reply::Nil(None),
            Renewed::Moved(first, second) => {
                self.reached.count(if second.is_some() { "renewed both" } else { "renewed" });
                if self.naive.last_token > before.last_token {
                    self.reached.count("token lifted");
                }
                let lapsed = before.lapsed(self.now) as u64;
                let applied = self.apply(first);
                assert_eq!((applied.lapsed, applied.is_visible), (lapsed, lapsed > 0));
                if let Some(second) = second {
                    let applied = self.apply(second);
                    assert_eq!((applied.lapsed, applied.is_visible), (0, false));
                }
                Reply::One
            }
        };
        assert_eq!(reply, expected);
    }

    /// Applies the one effect of a command, which the model has done already.
    fn apply_once(&mut self, effect: Effect, before: &Naive) {
        let applied = self.apply(effect);
        assert_eq!(applied.lapsed, before.lapsed(self.now) as u64);
        assert!(applied.is_visible, "an entry or a release changes a count");
    }

    /// Applies an effect on the primary, and what a link makes of it on the replica, there once or twice.
    fn apply(&mut self, effect: Effect) -> Applied {
        let effect = Effect { waiters: self.naive.waiters, ..effect };
        let mut bytes = Vec::new();
        encode_effect(&effect, &mut bytes);
        quick::check_bytes(&effect, &bytes);
        let received = decode_effect(&bytes).expect("what was encoded");
        assert_eq!(received, effect);
        let expected = self.replica.clone();
        let applied = self.primary.apply(effect);
        assert_eq!(self.replica.apply(received.clone()), applied, "from {expected:?}");
        let mut twice = self.replica.clone();
        let again = twice.apply(received);
        assert_eq!((again.lapsed, again.is_visible), (0, false));
        assert_eq!(twice.stored(), self.replica.stored());
        assert_eq!(twice.end, self.replica.end);
        applied
    }

    /// A release that was replicated as the command has to do what its effect does.
    fn compare_verbatim(&self, effect: &Effect, released: Released) {
        let (Released::Partly(local) | Released::Fully(local)) = released else {
            panic!("the replica decides {released:?}, the primary {effect:?}");
        };
        let (mut by_effect, mut by_command) = (self.replica.clone(), self.replica.clone());
        assert_eq!(by_effect.apply(effect.clone()), by_command.apply(local));
        assert_eq!(by_effect.stored(), by_command.stored());
        assert_eq!(by_effect.end, by_command.end);
    }

    fn set_end(&mut self, end: Option<u64>) {
        if self.naive.holds.is_empty() {
            return;
        }
        self.naive.end = end;
        self.primary.end = end.map(UnixMs::new);
        self.replica.end = self.primary.end;
    }

    fn delete(&mut self) {
        self.naive.delete();
        self.primary.delete();
        self.replica.delete();
    }

    /// Everything that can be seen of the lock, now and a little later.
    fn compare(&mut self) {
        let mut stored = self.naive.holds.clone();
        stored.sort();
        for node in [&self.primary, &self.replica] {
            assert_eq!(node.stored(), stored);
            assert_eq!(by_token(reloaded(&node.lock).stored_holds()), stored);
            assert_eq!(node.end.map(UnixMs::get), self.naive.end.filter(|_| !stored.is_empty()));
            assert_eq!(node.tokens.last(), self.naive.last_token);
        }
        let before = std::mem::replace(&mut self.tokens, stored.iter().map(|hold| hold.token).collect());
        for time in [self.now, self.now + 1 + self.naive.last_token % 70] {
            self.compare_view(time, &before);
        }
        self.reached.state(&self.naive, self.now);
    }

    fn compare_view(&self, now: u64, before: &BTreeSet<u64>) {
        let (lock, time, live) = (&self.primary.lock, UnixMs::new(now), self.naive.live(now));
        assert_eq!(lock.is_empty(), self.naive.holds.is_empty());
        assert_eq!(lock.stored(), self.naive.holds.len());
        assert_eq!(lock.has_lapsed(time), self.naive.lapsed(now) > 0);
        assert_eq!(lock.last_deadline().map(UnixMs::get), self.naive.last_deadline());
        assert_eq!(by_token(lock.live_holds(time)), live);
        for who in self.naive.holds.iter().map(|hold| hold.owner).chain([0]) {
            let mine: Vec<Hold> = live.iter().filter(|hold| hold.owner == who).cloned().collect();
            assert_eq!(by_token(lock.live_holds_of(&self.owners[who], time)), mine);
        }
        for token in self.tokens.union(before).copied().chain([NEVER]) {
            let longest = live.iter().filter(|hold| hold.token == token).map(|hold| hold.deadline).max();
            assert_eq!(lock.deadline_of(token_of(token), time).map(UnixMs::get), longest, "token {token}");
        }
        self.compare_summary(time, &live);
    }

    fn compare_summary(&self, time: UnixMs, live: &[Hold]) {
        let Some(summary) = self.primary.lock.summary(time) else { return assert!(live.is_empty()) };
        let is_held = |mode| live.iter().any(|hold| hold.mode == mode);
        let mode = match (is_held(Mode::Exclusive), is_held(Mode::Shared)) {
            (true, false) => LockMode::Exclusive,
            (false, true) => LockMode::Shared,
            (true, true) => LockMode::Both,
            (false, false) => panic!("a summary of nothing"),
        };
        assert_eq!(summary.mode, mode);
        assert_eq!(summary.holders, live.iter().map(|hold| hold.owner).collect::<BTreeSet<_>>().len() as u64);
        assert_eq!(summary.entries, live.iter().map(|hold| hold.count).sum::<u64>());
        assert_eq!(Some(summary.token.get()), live.iter().map(|hold| hold.token).max());
        assert_eq!(Some(summary.deadline.get()), live.iter().map(|hold| hold.deadline).max());
    }

    fn find(&self, somebody: Somebody) -> Who {
        let holds = &self.naive.holds;
        match somebody {
            Somebody::Holder(place) => holds.get(place % holds.len().max(1)).map_or(0, |hold| hold.owner),
            Somebody::Any(who) => who,
        }
    }

    fn pick(&self, who: Who, pick: TokenPick) -> u64 {
        let holds = &self.naive.holds;
        let hold = match pick {
            TokenPick::Mine(mode) => holds.iter().find(|hold| hold.owner == who && hold.mode == mode),
            TokenPick::Of(place) => holds.get(place % holds.len().max(1)),
            TokenPick::Never => None,
        };
        hold.map_or(NEVER, |hold| hold.token)
    }

    fn clock(&self) -> UnixMs {
        UnixMs::new(self.now)
    }
}

impl Node {
    fn apply(&mut self, effect: Effect) -> Applied {
        let applied = self.lock.apply(effect, &mut self.tokens);
        self.end =
            self.lock.last_deadline().map(|last| applied.expiry.key_deadline(|| self.end, last, applied.waiters));
        applied
    }

    fn delete(&mut self) {
        (self.lock, self.end) = (Lock::default(), None);
    }

    fn stored(&self) -> Vec<Hold> {
        by_token(self.lock.stored_holds())
    }
}

fn reloaded(lock: &Lock) -> Lock {
    if lock.is_empty() {
        return Lock::default();
    }
    let mut bytes = Vec::new();
    encode_lock(lock, &mut bytes);
    decode_lock(&bytes).expect("what was encoded")
}

const BEGIN_MS: u64 = 1_000_000;
const NEVER: u64 = 7;
