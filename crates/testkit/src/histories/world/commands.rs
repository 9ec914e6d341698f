//! The commands of a history, each on the engine and on the model.

use dlock_core::engine::{Answer, Call, Entered, Event, Fault, Left, Output, WaiterId};
use dlock_core::{
    ClientId, Command, Keyspace, LeaseChoice, Name, Renew, RenewToken, Request as CoreRequest, Token, UnixMs, Want,
};

use super::World;
use super::turn::split;
use crate::histories::history::{Acquiring, ClientNo, KeyNo, What};
use crate::histories::leave::{Fence, Leave, Renewal};
use crate::histories::naive::{Lease, Reply, Request};
use crate::histories::plain;
use crate::keyspace::{KeyName, RunningRelease, name};

impl World {
    pub(super) fn may_run(&self, keys: &[KeyNo]) -> bool {
        keys.iter().all(|key| !self.space.permissions.contains_key(&plain::key_name(*key)))
    }

    pub(super) fn acquire(&mut self, acquiring: &Acquiring) {
        let Acquiring { client, owner, what, lease, block, binds, ahead, id } = acquiring;
        let (keys, want) = match what {
            What::Acquire(key) => (vec![*key], Want::ExclusiveOnce),
            What::Racquire(key) => (vec![*key], Want::Exclusive),
            What::Rlock(key) => (vec![*key], Want::Shared),
            What::Sacquire(key, permits, limit) => (vec![*key], Want::Permits { permits: *permits, limit: *limit }),
            What::Macquire(keys) => (keys.clone(), Want::ExclusiveOnce),
        };
        let is_drawn = owner.is_none();
        self.drawn += 3 * usize::from(is_drawn);
        let request = Request {
            ticket: 0,
            client: self.clients[*client],
            owner: owner.unwrap_or(self.drawn),
            is_drawn,
            keys,
            want,
            lease: self.lease(*lease),
            binds: *binds,
            min_token: ahead.map_or(0, |ahead| self.space.now().us() + u64::from(ahead)),
            asked: id.map(|id| (plain::command(what), id)),
            since: 0,
            is_upgrade: false,
        };
        if id.is_some() {
            self.sent = Some(request.clone());
        }
        self.request(request, *block);
    }

    pub(super) fn resend(&mut self, client: ClientNo, block: bool) {
        if let Some(sent) = self.sent.clone() {
            let lease = match sent.lease {
                // A lease that has passed is a syntax error.
                Lease::Until(at) if at <= self.naive.now() => Lease::For(400),
                lease => lease,
            };
            self.request(Request { client: self.clients[client], lease, ..sent }, block);
        }
    }

    /// A request to enter: its ticket and the reply; `None` if the server does not serve its keys.
    pub fn request(&mut self, request: Request, block: bool) -> Option<(u64, Reply)> {
        if !self.may_run(&request.keys) {
            return None;
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let request = Request { ticket, ..request };
        let names: Vec<KeyName> = request.keys.iter().map(|key| plain::key_name(*key)).collect();
        let names: Vec<Name<'_>> = names.iter().map(name).collect();
        let call = Call { name: names[0], now: self.space.now(), client: ClientId(request.client) };
        let ask = CoreRequest {
            is_owner_drawn: request.is_drawn,
            id: request.asked.map(plain::request).map(Box::new),
            session: request.binds,
            min_token: Token::new(request.min_token),
            ..CoreRequest::new(plain::owner(request.owner), request.want, choice(request.lease))
        };
        let wait = block.then_some(|_: WaiterId| ticket);
        let entered = if names.len() == 1 && request.asked.is_none_or(|(command, _)| command != Command::Macquire) {
            self.engine.acquire(&mut self.space, call, &ask, wait)
        } else {
            self.engine.acquire_all(&mut self.space, call, &names, &ask, wait)
        };
        let outputs = self.engine.take_outputs();
        let is_takeover = matches!(entered, Ok(Entered::Waiting(_))) && !outputs.contains(&Output::Own(0, Event::Wait));
        let mut before = split(outputs, request.keys.len(), None).0;
        let first = if is_takeover { before.pop() } else { None };
        self.naive.begin_command(&request.keys, request.owner);
        self.answers(before);
        let expected = self.naive.acquire(request.clone(), block);
        let reply = match &entered {
            Ok(Entered::Granted(token)) => Reply::Granted(token.get()),
            Ok(Entered::Replayed(token)) => Reply::Replayed(token.get()),
            Ok(Entered::Waiting(id)) => {
                self.waiters.insert(ticket, *id);
                match first {
                    Some((first, Answer::Nil)) => {
                        assert_eq!(self.waiters.remove(&first), Some(*id), "it has the place of the first");
                        Reply::TakesOver(first)
                    }
                    _ => Reply::Waits,
                }
            }
            Ok(Entered::Refused) => Reply::Nil,
            Err(fault) => reply_of(fault),
        };
        assert_eq!(reply, expected, "{request:?} {entered:?} {:?}", self.naive);
        self.reached.acquired(&request, reply);
        self.end_command(&request.keys);
        Some((ticket, reply))
    }

    /// A `RELEASE`.
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
        self.space.running = Some(running.clone());
        let key_name = plain::key_name(key);
        let call = Call { name: name(&key_name), now: self.space.now(), client: ClientId(0) };
        let stats = self.engine.stats();
        let left = self.engine.release(&mut self.space, call, &running.request());
        self.space.running = None;
        // Those that waited before the release, and those that it lets in.
        let is_certain =
            self.engine.stats().replays == stats.replays || self.engine.stats().session_ends == stats.session_ends;
        let is_released = matches!(left, Ok(Left::Fully)) || (matches!(left, Ok(Left::Partly)) && is_certain);
        let marker = is_released.then_some(Event::Release);
        let (before, after) = split(self.engine.take_outputs(), 1, marker);
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

    /// A `RENEW`.
    pub fn renew(&mut self, key: KeyNo, renewal: Renewal) -> Option<Reply> {
        if !self.may_run(&[key]) {
            return None;
        }
        let Renewal { client, owner, mode, lease, fence, binds } = renewal;
        let owner = plain::owner(owner);
        let token = match fence {
            Fence::Any => RenewToken::Any,
            Fence::Is(token) => RenewToken::Is(plain::token(token)),
            Fence::AtLeast(token) => RenewToken::AtLeast(plain::token(token)),
        };
        let request = Renew { owner: &owner, mode, lease: choice(lease), token };
        let key_name = plain::key_name(key);
        let call = Call { name: name(&key_name), now: self.space.now(), client: ClientId(client) };
        let renewed = self.engine.renew(&mut self.space, call, &request, binds);
        let before = split(self.engine.take_outputs(), 1, None).0;
        self.naive.begin_command(&[key], renewal.owner);
        self.answers(before);
        let expected = self.naive.renew(key, renewal);
        let reply = match renewed {
            Ok(false) => Reply::Nil,
            Ok(true) => Reply::Number(1),
            Err(fault) => reply_of(&fault),
        };
        assert_eq!(reply, expected, "{renewal:?} {:?}", self.naive);
        self.reached.renewed(reply);
        self.end_command(&[key]);
        Some(reply)
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
        // Histories have few locks.
        Fault::SessionLoad | Fault::SessionKey => panic!("{fault:?}"),
        Fault::TooManyEntries | Fault::NoToken | Fault::TryAgain => panic!("{fault:?}"),
    }
}

fn choice(lease: Lease) -> LeaseChoice {
    match lease {
        Lease::Own => LeaseChoice::Own,
        Lease::For(ms) => LeaseChoice::For(plain::lease(ms)),
        Lease::Until(at) => LeaseChoice::Until(UnixMs::new(at)),
    }
}
