//! Who waits, whose turn it is, who would wait for ever.

use super::lock::{Ask, Entered, Mode, WRONG_TYPE, excludes};
use super::{Client, Key, Model, Reply, Value};

/// A client that waits.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub client: Client,
    pub ask: Ask,
    pub is_upgrade: bool,
}

impl Model {
    /// A request to enter. Where blocking is denied, `BLOCK` is ignored.
    pub fn enter(&mut self, now: u64, client: Client, key: Key, ask: &Ask) -> Reply {
        if self.keys.get(&key) == Some(&Value::Text) {
            return WRONG_TYPE;
        }
        self.serve(now, key);
        let is_in = self.holds(key).iter().any(|hold| hold.owner == ask.owner);
        let is_free_to_ask = is_in || self.line(key).is_empty();
        let entered = if is_free_to_ask { self.try_enter(now, client, key, ask) } else { Entered::Held };
        let reply = match entered {
            Entered::In(serial) if ask.is_made_up => Reply::FreshOwner(serial),
            Entered::In(serial) => Reply::Token(serial),
            Entered::Owned if ask.blocks => DEADLOCK,
            Entered::Held if ask.blocks => self.wait(client, key, ask),
            Entered::Owned | Entered::Held => Reply::Nil,
        };
        self.drop_empty(key);
        reply
    }

    fn wait(&mut self, client: Client, key: Key, ask: &Ask) -> Reply {
        let repeats = |waiter: &Waiter| {
            let same = (waiter.ask.command, &waiter.ask.owner, waiter.ask.request);
            ask.request.is_some() && same == (ask.command, &ask.owner, ask.request)
        };
        if let Some(place) = self.lines.entry(key).or_default().iter_mut().find(|waiter| repeats(waiter)) {
            let first = place.client;
            (place.client, place.ask) = (client, ask.clone());
            self.told.push((first, Reply::Nil));
            return Reply::Later;
        }
        if self.max_waiters > 0 && self.waiters() >= self.max_waiters {
            return Reply::Error("ERR max number of waiters reached");
        }
        let is_upgrade = ask.mode == Mode::Exclusive && self.holds(key).iter().any(|hold| hold.owner == ask.owner);
        let line = self.line(key);
        let upgrades = line.iter().filter(|waiter| waiter.is_upgrade).count();
        if is_upgrade && line.iter().any(|waiter| waiter.is_upgrade && waiter.ask.owner != ask.owner) {
            return DEADLOCK;
        }
        let waits_elsewhere = self.waits_of(&ask.owner).next().is_some();
        let place = if is_upgrade { upgrades } else { line.len() };
        self.lines.entry(key).or_default().insert(place, Waiter { client, ask: ask.clone(), is_upgrade });
        if !waits_elsewhere && self.waits_for_itself(&ask.owner) {
            self.lines.entry(key).or_default().remove(place);
            return DEADLOCK;
        }
        Reply::Later
    }

    /// Whether the owner waits for itself, through those it waits for and those they wait for.
    fn waits_for_itself(&self, owner: &[u8]) -> bool {
        let mut found: Vec<Vec<u8>> = self.in_the_way_of(owner);
        let mut at = 0;
        while let Some(next) = found.get(at).cloned() {
            if next == owner {
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
    fn in_the_way_of(&self, owner: &[u8]) -> Vec<Vec<u8>> {
        let waits: Vec<(Key, usize)> = self.waits_of(owner).collect();
        let [(key, place)] = waits.as_slice() else { return Vec::new() };
        let ahead: Vec<&Waiter> = self.line(*key).iter().take(place + 1).collect();
        let bars = |mode| ahead.iter().any(|waiter| excludes(waiter.ask.mode, mode));
        let holders = self.holds(*key).iter().filter(|hold| bars(hold.mode)).map(|hold| hold.owner.clone());
        let others = ahead.iter().map(|waiter| waiter.ask.owner.clone());
        holders.chain(others).filter(|other| other != owner).collect()
    }

    fn waits_of(&self, owner: &[u8]) -> impl Iterator<Item = (Key, usize)> {
        self.lines.iter().flat_map(move |(key, line)| {
            line.iter().enumerate().filter(move |(_, waiter)| waiter.ask.owner == owner).map(|(at, _)| (*key, at))
        })
    }

    /// The line of a key, the head first.
    pub fn line(&self, key: Key) -> &[Waiter] {
        self.lines.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Answers everybody in line whose turn it is.
    pub fn serve(&mut self, now: u64, key: Key) {
        if self.keys.get(&key) == Some(&Value::Text) {
            for waiter in self.lines.remove(&key).unwrap_or_default() {
                self.told.push((waiter.client, WRONG_TYPE));
            }
            return;
        }
        while let Some(Waiter { client, ask, .. }) = self.line(key).first().cloned() {
            let Entered::In(serial) = self.try_enter(now, client, key, &ask) else { break };
            self.lines.entry(key).or_default().remove(0);
            self.told.push((client, Reply::Token(serial)));
        }
        self.drop_empty(key);
    }

    /// Serves every line.
    pub fn serve_all(&mut self, now: u64) {
        let keys: Vec<Key> = self.lines.keys().copied().collect();
        keys.into_iter().for_each(|key| self.serve(now, key));
    }

    /// A client leaves the line it is in, with this answer.
    pub fn give_up(&mut self, now: u64, client: Client, reply: Reply) {
        for line in self.lines.values_mut() {
            line.retain(|waiter| waiter.client != client);
        }
        self.told.push((client, reply));
        self.serve_all(now);
    }
}

const DEADLOCK: Reply = Reply::Error("DEADLOCK ");
