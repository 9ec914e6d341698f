//! Plays a history of a waiting line on the core and on the model. What has to hold whatever the model says (nobody
//! is in beside whom he excludes, tokens go up, no turn is missed) is looked at as well.

use std::collections::BTreeMap;

use dlock_core::{
    Acquire, Acquired, Effect, Entry, Line, Lock, Mode, Owner, Place, Refusal, Release, Released, Renew, RenewToken,
    Renewed, Request, Served, Token, TokenClock, TwoUpgrades, UnixMs,
};

use super::crowd::{Ask, Event, Patience};
use super::history::Who;
use super::naive::{Asked, DEFAULT_LEASE, Enter, Fence, How, Leave, Naive, Reply, excludes};
use super::naive_line::NaiveLine;
use super::plain::{by_token, choice, entering, lease_of, owner, request_of};
use super::reached::Reached;

/// A lock with its line, and the model of both.
#[derive(Default)]
pub struct Shop {
    now: u64,
    lock: Lock,
    tokens: TokenClock,
    line: Line<u64>,
    places: BTreeMap<u64, Place>,
    naive: Naive,
    naive_line: NaiveLine,
    tickets: u64,
    /// The last request that had an id.
    asked: Option<Enter>,
    ids: u8,
    last_token: u64,
    reached: Reached,
}

impl Shop {
    /// Plays the history; panics where the two do not agree.
    pub fn play(events: &[Event]) -> Reached {
        let mut shop = Shop { now: 1_000_000, ..Shop::default() };
        for event in events {
            shop.happen(event);
            if !matches!(event, Event::Wait(_)) {
                shop.serve();
            }
            shop.compare();
        }
        shop.reached
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Wait(ms) => self.now += ms,
            Event::Look => {}
            Event::Ask(ask) => {
                let Ask { owner, mode, reentry, lease, has_id, patience } = *ask;
                // Ids may come again after 256 requests, which no history has.
                self.ids = self.ids.wrapping_add(1);
                let request = has_id.then_some(Asked { what: entering(mode, reentry), id: self.ids });
                let enter = Enter { owner, mode, reentry, lease, request, session: None };
                self.asked = request.map(|_| enter).or(self.asked);
                self.ask(enter, patience);
            }
            Event::AskAgain(patience) => self.ask_again(*patience),
            Event::Release(who, mode, entries) => {
                self.release(Leave { owner: *who, mode: *mode, entries: *entries, token: None, request: None });
            }
            Event::Renew(who, lease) => self.renew(*who, super::history::Lease::For(*lease)),
            Event::SessionEnds(who, mode, grace) => self.end_session(*who, *mode, *grace),
            Event::Leave(at) => self.leave(*at),
            Event::Delete => {
                (self.lock, self.naive.holds) = (Lock::default(), Vec::new());
            }
        }
    }

    fn ask(&mut self, enter: Enter, patience: Patience) -> Reply {
        let expected = self.naive_line.ask(&mut self.naive, self.now, enter);
        let who = owner(enter.owner);
        let id = enter.request.map(request_of);
        let request = request(self.now, enter, &who, id.as_ref());
        let decided = self.line.decide(&self.lock, self.clock(), &request, lease_of(DEFAULT_LEASE), self.fresh());
        let reply = match decided {
            Acquired::Granted { token, entry, effect } => self.enter(enter, token, entry, effect),
            Acquired::Replayed(hold) => Reply::Replayed(Some(hold.token.get())),
            Acquired::Refused(refusal) => Reply::Nil(Some(refusal)),
        };
        assert_eq!(reply, expected);
        if reply == Reply::Nil(Some(Refusal::Held)) && patience == Patience::Block {
            self.wait(enter, &request);
        }
        reply
    }

    fn wait(&mut self, enter: Enter, request: &Acquire) {
        self.tickets += 1;
        let (ticket, before) = (self.tickets, self.line.len());
        if let Some(at) = self.naive_line.repeated(&enter) {
            let waiter = &mut self.naive_line.0[at];
            let first = std::mem::replace(&mut waiter.ticket, ticket);
            (waiter.enter, waiter.asked) = (enter, self.now);
            let place = self.places.remove(&first).expect("it waits");
            assert!(self.line.is_repeated(place, request.request.expect("it is repeated")));
            assert_eq!(self.line.take_over(place, request.lease, ticket), Some(first));
            self.places.insert(ticket, place);
            assert_eq!(self.line.len(), before, "a repeated request has one place");
            self.reached.count("taken over");
            return;
        }
        let is_repeated = |place: &Place| request.request.is_some_and(|id| self.line.is_repeated(*place, id));
        assert!(!self.places.values().any(is_repeated), "ids are new");
        let joins = self.naive_line.join(&self.naive, self.now, enter, ticket);
        match self.line.join(&self.lock, self.clock(), request, ticket) {
            Ok(place) => drop(self.places.insert(ticket, place)),
            Err(TwoUpgrades) => self.reached.count("two upgrades"),
        }
        assert_eq!(joins, self.places.contains_key(&ticket));
    }

    /// However often a request comes: it has one entry, and the token it got.
    fn ask_again(&mut self, patience: Patience) {
        let Some(enter) = self.asked else { return };
        let first = self.ask(enter, patience);
        let holds = self.naive.holds.clone();
        let again = self.ask(enter, patience);
        if let Reply::Token(token, _) | Reply::Replayed(Some(token)) = first {
            assert_eq!(again, Reply::Replayed(Some(token)));
            assert_eq!(self.naive.holds, holds);
        }
    }

    fn release(&mut self, leave: Leave) {
        let who = owner(leave.owner);
        let Leave { mode, entries, .. } = leave;
        let expected = self.naive.release(self.now, leave);
        let request = Release { owner: &who, mode, entries, token: None, request: None };
        let reply = match self.lock.release(self.clock(), &request) {
            Released::NotHeld => Reply::Nil(None),
            Released::Ambiguous => Reply::Ambiguous,
            Released::Replayed => Reply::Replayed(None),
            Released::Partly(effect) => self.apply(effect, Reply::Zero),
            Released::Fully(effect) => self.apply(effect, Reply::One),
        };
        assert_eq!(reply, expected);
    }

    fn renew(&mut self, who: Who, lease: super::history::Lease) {
        let expected = self.naive.renew(self.now, &who, None, lease, Fence::Any);
        let who = owner(who);
        let request = Renew { owner: &who, mode: None, lease: choice(self.now, lease), token: RenewToken::Any };
        let reply = match self.lock.renew(self.clock(), &request) {
            Renewed::NotHeld => Reply::Nil(None),
            Renewed::Moved(first, second) => {
                self.apply(first, ());
                second.map_or(Reply::One, |second| self.apply(second, Reply::One))
            }
        };
        assert_eq!(reply, expected);
    }

    fn end_session(&mut self, who: Who, mode: Mode, grace: Option<u64>) {
        let expected = self.naive.end_session(self.now, &who, mode, grace);
        let token = self.lock.live_holds_of(&owner(who), self.clock()).find(|hold| hold.mode == mode);
        let token = token.map_or(Token::MAX, |hold| hold.token);
        let effect = self.lock.end_session(self.clock(), &owner(who), mode, token, grace.map(lease_of));
        let ended = effect.map(|effect| self.apply(effect, ()));
        assert_eq!(ended.is_some(), expected);
    }

    fn leave(&mut self, at: usize) {
        if at >= self.naive_line.0.len() {
            return;
        }
        let waiter = self.naive_line.0.remove(at);
        let place = self.places.remove(&waiter.ticket).expect("it waits");
        assert_eq!(self.line.is_head(place), at == 0);
        assert_eq!(self.line.leave(place).map(|waiting| waiting.ticket), Some(waiter.ticket));
        assert_eq!((self.line.leave(place), self.line.is_head(place)), (None, false));
    }

    /// Serves the line on both, and looks whether a turn was missed.
    fn serve(&mut self) {
        for (waiter, expected) in self.naive_line.serve(&mut self.naive, self.now) {
            let served = self.line.serve(&self.lock, self.clock(), lease_of(DEFAULT_LEASE), self.fresh());
            let (ticket, reply) = match served.expect("it is somebody's turn") {
                Served::Granted { waiting, token, entry, effect } => {
                    (waiting.ticket, self.enter(waiter.enter, token, entry, effect))
                }
                Served::Replayed(waiting, hold) => (waiting.ticket, Reply::Replayed(Some(hold.token.get()))),
                Served::Refused(waiting, refusal) => (waiting.ticket, Reply::Nil(Some(refusal))),
            };
            assert_eq!((ticket, reply), (waiter.ticket, expected));
            self.places.remove(&ticket);
            self.reached.served(waiter.is_upgrade, reply);
        }
        assert_eq!(self.line.serve(&self.lock, self.clock(), lease_of(DEFAULT_LEASE), self.fresh()), None);
        let Some(head) = self.naive_line.0.first() else { return };
        let is_in_the_way = self.lock.live_holds(self.clock()).any(|hold| {
            let is_own = hold.owner == owner(head.enter.owner);
            if is_own {
                head.enter.reentry == dlock_core::Reentry::Refuse
            } else {
                excludes(head.enter.mode, hold.mode)
            }
        });
        assert!(is_in_the_way, "nothing keeps {head:?} out of {:?}", self.lock);
    }

    /// Somebody comes in, beside nobody he excludes.
    fn enter(&mut self, enter: Enter, token: Token, entry: Entry, effect: Effect) -> Reply {
        let who = owner(enter.owner);
        let bars = |hold: &dlock_core::Hold| hold.owner != who && excludes(hold.mode, enter.mode);
        assert!(!self.lock.live_holds(self.clock()).any(bars), "{enter:?} came into {:?}", self.lock);
        let how = match entry {
            Entry::First => {
                assert!(token.get() > self.last_token, "{token:?} after {}", self.last_token);
                self.last_token = token.get();
                How::New
            }
            Entry::Again => How::Again,
        };
        self.apply(effect, Reply::Token(token.get(), how))
    }

    fn compare(&mut self) {
        let mut stored = self.naive.holds.clone();
        stored.sort();
        assert_eq!(by_token(self.lock.stored_holds()), stored);
        let expected: Vec<_> = self.naive_line.0.iter().map(|waiter| (waiter.ticket, waiter.since)).collect();
        let waiting: Vec<_> = self.line.iter().map(|waiting| (waiting.ticket, waiting.since.get())).collect();
        assert_eq!(waiting, expected);
        assert_eq!((self.line.len(), self.line.is_empty()), (expected.len(), expected.is_empty()));
        for (at, waiter) in self.naive_line.0.iter().enumerate() {
            let place = self.places[&waiter.ticket];
            assert_eq!(self.line.waits_for(place), self.naive_line.waits_for(at), "{at}");
            assert_eq!(self.line.is_head(place), at == 0);
        }
        self.reached.waiting = self.reached.waiting.max(self.line.len());
    }

    fn apply<T>(&mut self, effect: Effect, then: T) -> T {
        self.lock.apply(effect, &mut self.tokens);
        then
    }

    fn fresh(&self) -> Option<Token> {
        self.tokens.next(self.now * 1000)
    }

    fn clock(&self) -> UnixMs {
        UnixMs::new(self.now)
    }
}

fn request<'a>(now: u64, enter: Enter, owner: &'a Owner, request: Option<&'a Request>) -> Acquire<'a> {
    let Enter { mode, reentry, lease, .. } = enter;
    Acquire { owner, mode, reentry, lease: choice(now, lease), request }
}
