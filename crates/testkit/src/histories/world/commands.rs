//! Runs the commands of locks on the engine and on the model.

use dlock_core::engine::{Answer, Event, Fault, Grant, Left, SlotAnswer};
use dlock_core::{BindTo, Binding, Change, Command, Reach, Renew, RenewToken, Request as CoreRequest, decode_effect};

use super::World;
use super::turn::split;
use crate::histories::how::How;
use crate::histories::leave::{Fence, Leave, Renewal};
use crate::histories::naive::{Reply, Request};
use crate::histories::plain;
use crate::histories::values::{ClientNo, KeyNo, Lease, SessionNo, Somebody};
use crate::keyspace::{KeyName, Replicated, RunningRelease};
use crate::memory_server::Entry;

impl World {
    /// Returns whether commands on these keys run: their timers have all permissions.
    pub(super) fn may_run(&self, keys: &[KeyNo]) -> bool {
        keys.iter().all(|key| !self.server.space.permissions.contains_key(&plain::key_name(*key)))
    }

    pub(super) fn enter(&mut self, client: ClientNo, owner: Option<Somebody>, keys: Vec<KeyNo>, how: How) {
        let is_drawn = owner.is_none();
        // A step of 3 gives all drawn owners the same form: see `plain::owner`.
        self.drawn += 3 * usize::from(is_drawn);
        let request = Request {
            ticket: 0,
            client: self.clients[client],
            owner: owner.map_or(self.drawn, |owner| self.find(keys[0], owner)),
            is_drawn,
            keys,
            how: How { lease: self.lease(how.lease), ..how }.from(self.naive.now_us),
            since: 0,
            is_upgrade: false,
            session: None,
        };
        if how.id.is_some() {
            self.sent = Some(request.clone());
        }
        self.request(request);
    }

    pub(super) fn resend(&mut self, client: ClientNo, block: bool) {
        if let Some(mut sent) = self.sent.clone() {
            // A lease that has passed is a syntax error.
            if matches!(sent.how.lease, Lease::Until(at) if at <= self.naive.now()) {
                sent.how.lease = Lease::For(400);
                sent.how.cap = sent.how.cap.map(|cap| cap.max(400));
            }
            (sent.client, sent.how.blocks) = (self.clients[client], block);
            self.request(sent);
        }
    }

    /// Runs a request for locks. Returns its ticket and the reply, or `None` if the server does not serve its keys.
    pub fn request(&mut self, request: Request) -> Option<(u64, Reply)> {
        if !self.may_run(&request.keys) {
            return None;
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let request = Request { ticket, ..request };
        let names: Vec<KeyName> = request.keys.iter().map(|key| plain::key_name(*key)).collect();
        let how = request.how;
        let ask = CoreRequest {
            is_owner_drawn: request.is_drawn,
            session: self.bind_to(request.client, how.binds, how.named),
            ..how.request(plain::owner(request.owner))
        };
        let replicated = self.replicated_so_far();
        let all = how.command == Command::Macquire;
        let entered = self.server.enter(request.client, &names, all, &ask, how.blocks.then_some(ticket));
        let mut before = split(self.server.take_outputs(), request.keys.len(), None).0;
        let reply = match &entered {
            Ok(Entry::Granted(grant)) => Reply::Granted(grant.token.get()),
            Ok(Entry::Replayed(grant)) => Reply::Replayed(grant.token.get()),
            Ok(Entry::Waits) => Reply::Waits,
            Ok(Entry::TakesOver(first)) => {
                assert_eq!(before.pop(), Some((*first, Answer::Nil)), "the request that waited gets nil");
                Reply::TakesOver(*first)
            }
            Ok(Entry::Refused) => Reply::Nil,
            Err(fault) => reply_of(fault),
        };
        if before.is_empty() {
            self.check_refusal(replicated, reply);
        }
        self.naive.begin_command(&request.keys, request.owner);
        self.answers(before);
        let expected = self.naive.acquire(request.clone());
        assert_eq!(reply, expected, "{request:?} {entered:?} {:?}", self.naive);
        if let Ok(Entry::Granted(grant) | Entry::Replayed(grant)) = entered {
            self.check_slot(&request, grant);
        }
        self.reached.acquired(&request, reply);
        self.end_command(&request.keys);
        Some((ticket, reply))
    }

    /// Runs a `RELEASE`. Returns `None` if the server does not serve the key.
    pub fn release(&mut self, key: KeyNo, leave: Leave) -> Option<Reply> {
        if !self.may_run(&[key]) {
            return None;
        }
        let Leave { owner, mode, entries, token, asked } = leave;
        let running = RunningRelease {
            owner: plain::owner(owner),
            mode,
            entries,
            token: token.map(plain::token),
            request: asked.map(plain::request),
        };
        let stats = self.server.engine.stats();
        let left = self.server.release(0, &plain::key_name(key), running);
        // The answers before the release, which the end of a session may cause, are checked before those after it.
        let now = self.server.engine.stats();
        let is_certain = now.replays == stats.replays || now.session_ends == stats.session_ends;
        let is_released = matches!(left, Ok(Left::Fully)) || (matches!(left, Ok(Left::Partly)) && is_certain);
        let marker = is_released.then_some(Event::Release);
        let (before, after) = split(self.server.take_outputs(), 1, marker);
        self.naive.begin_command(&[key], leave.owner);
        self.answers(before);
        let expected = self.naive.release(key, leave);
        let reply = match left {
            Ok(Left::NotHeld) => Reply::Nil,
            Ok(Left::Partly) => Reply::Number(0),
            Ok(Left::Fully) => Reply::Number(1),
            Err(fault) => reply_of(&fault),
        };
        assert_eq!(reply, expected, "{leave:?} {:?}", self.naive);
        self.reached.released(reply);
        self.answers(after);
        self.end_command(&[key]);
        Some(reply)
    }

    /// Runs a `RENEW`. Returns `None` if the server does not serve the key.
    pub fn renew(&mut self, key: KeyNo, renewal: Renewal) -> Option<Reply> {
        if !self.may_run(&[key]) {
            return None;
        }
        let Renewal { client, owner, mode, lease, fence, binds, named } = renewal;
        let owner = plain::owner(owner);
        let token = match fence {
            Fence::Any => RenewToken::Any,
            Fence::Is(token) => RenewToken::Is(plain::token(token)),
            Fence::AtLeast(token) => RenewToken::AtLeast(plain::token(token)),
        };
        let request = Renew { owner: &owner, mode, lease: plain::lease_choice(lease), token };
        let session = self.bind_to(client, binds, named);
        let renewed = self.server.renew(client, &plain::key_name(key), &request, session);
        let before = split(self.server.take_outputs(), 1, None).0;
        self.naive.begin_command(&[key], renewal.owner);
        self.answers(before);
        let expected = self.naive.renew(key, renewal);
        let reply = match renewed {
            Ok(None) => Reply::Nil,
            Ok(Some(Reach::Cap)) => Reply::Number(0),
            Ok(Some(Reach::Asked)) => Reply::Number(1),
            Err(fault) => reply_of(&fault),
        };
        assert_eq!(reply, expected, "{renewal:?} {:?}", self.naive);
        self.reached.renewed(reply);
        self.end_command(&[key]);
        Some(reply)
    }
}

impl World {
    /// Fails unless the answer has the slot number of the hold, if the request asks for one.
    pub(super) fn check_slot(&mut self, request: &Request, grant: Grant) {
        let told = match grant.slot {
            SlotAnswer::NotAsked => None,
            SlotAnswer::None => Some(None),
            SlotAnswer::Number(slot) => Some(Some(slot)),
        };
        assert_eq!(told, self.naive.slot_answer(request), "{request:?} {:?}", self.naive);
        self.reached.slot(told);
    }

    /// Returns the session that the engine binds a hold to.
    fn bind_to(&self, client: u64, binds: bool, named: Option<SessionNo>) -> Binding {
        match named {
            Some(id) => {
                let user = plain::user(self.naive.user_of(client));
                BindTo::Named(self.server.engine.look_up_session(&plain::session(id), Some(user)))
            }
            None if binds => BindTo::Connection,
            None => BindTo::Nothing,
        }
    }

    /// Fails if a refused request has replicated anything but the removal of ended holds. `replicated` is the result of
    /// [`World::replicated_so_far`] before the request.
    fn check_refusal(&self, replicated: Option<usize>, reply: Reply) {
        let Some(replicated) = replicated else { return };
        if matches!(reply, Reply::Granted(_) | Reply::Replayed(_) | Reply::Waits | Reply::TakesOver(_)) {
            return;
        }
        let is_sweep = |what: &Replicated| match what {
            Replicated::Effect(bytes) => decode_effect(bytes).is_ok_and(|effect| effect.change == Change::Sweep),
            Replicated::Release(_) => false,
            Replicated::Removed => true,
        };
        let new = &self.server.space.stream()[replicated..];
        assert!(new.iter().all(|(_, what)| is_sweep(what)), "{reply:?} replicated {new:?}");
    }

    /// Returns the number of replicated changes, or `None` if the engine has work that is due.
    fn replicated_so_far(&self) -> Option<usize> {
        let has_ended = self.naive.keys.iter().any(|key| key.holds.iter().any(|hold| hold.ended.is_some()));
        (!self.server.is_due() && !has_ended).then(|| self.server.space.stream().len())
    }
}

fn reply_of(fault: &Fault) -> Reply {
    match fault {
        Fault::WrongType => Reply::WrongType,
        Fault::Ambiguous => Reply::Ambiguous,
        Fault::Deadlock(_) => Reply::Deadlock,
        Fault::TooManyWaiters => Reply::TooManyWaiters,
        Fault::SessionLease => Reply::SessionLease,
        Fault::SessionAbsolute => Reply::SessionAbsolute,
        Fault::NoSession(_) => Reply::NoSession,
        // Histories have no operation that leads to other faults.
        rest => panic!("{rest:?}"),
    }
}
