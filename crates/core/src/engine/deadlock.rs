//! Whether a request that begins to wait would wait forever: for itself, through others.
//!
//! A request waits for every owner ahead of it in each of its queues, and for every holder that it, or a request ahead
//! of it, excludes. If one of these owners waits too, it waits for others in turn, and so on. An owner that waits on
//! several connections has several threads of control: the search leaves it and its requests out. It follows only locks
//! of the request's own database that the client may read, and gives up after [`BUDGET`] steps: then the request waits.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Engine;
use super::keyspace::Keyspace;
use super::queue::{Place, Waiter, WaiterId};
use super::record::{Record, RecordId};
use crate::{Lock, Mode, Name, Owner};

/// How many steps a search takes at most: about a millisecond. A step looks at one waiter or holder, whose
/// owner is short.
const BUDGET: usize = 8000;
/// How long a step takes, in ns: what was measured counts by it.
const STEP_NS: u64 = 125;
/// How many bytes of an owner cost one step more: it is read, and hashed.
const OWNER_BYTES: usize = 128;
/// What it costs to look into a key that is not the request's own, in steps, beside what the ACL takes.
const KEY: usize = 17;
/// What it costs to come to a queue, in steps.
const QUEUE: usize = 3;
/// How many bytes of a key's name cost one step more.
const KEY_BYTES: usize = 200;

/// A cycle for a client that may not see who is in it.
const UNNAMED: &str = "the owners in the way wait for this one (DLOCK.INFO, which this user may not run, names them)";

/// A request in the path of the search: who waits, and which step led here, over which lock.
struct Node {
    waiter: WaiterId,
    from: Option<(usize, RecordId, As)>,
}

/// As what an owner is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    Holder,
    WaiterAhead,
}

struct Search {
    nodes: Vec<Node>,
    /// Up to where queues were looked at, and which holds.
    seen: BTreeMap<RecordId, Seen>,
    budget: usize,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    /// The last place up to which requests for several locks were looked at.
    ahead: Option<Place>,
    holders: Option<Mode>,
    /// Whether the search may look at it, once that is known.
    is_open: Option<bool>,
}

impl Search {
    /// Pays for some steps: whether the budget allows them.
    fn pay(&mut self, steps: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(steps)?;
        Some(())
    }
}

/// What it costs to find out where an owner waits, in steps.
fn cost(owner: &Owner) -> usize {
    1 + owner.heap_bytes() / OWNER_BYTES
}

impl<T> Engine<T> {
    /// The cycle of owners that a request which has just joined its queues closes, in words.
    pub(super) fn find_cycle<S: Keyspace>(&mut self, space: &mut S, origin: WaiterId) -> Option<String> {
        let waiter = self.waiters.get(origin)?;
        if self.waits.get(&waiter.owner).is_some_and(|waits| waits.len() > 1) {
            return None;
        }
        let own = waiter.records.clone();
        let owner = waiter.owner.clone();
        self.searches += 1;
        let mut search =
            Search { nodes: vec![Node { waiter: origin, from: None }], seen: BTreeMap::new(), budget: BUDGET };
        let mut at = 0;
        while let Some(waiter) = search.nodes.get(at).map(|node| node.waiter) {
            for record in self.waiters.get(waiter)?.records.clone() {
                let last = self.expand(space, &mut search, at, record, &owner, &own)?;
                if let Some(last) = last {
                    // The request's own locks were searched without a question.
                    let mut records = own.iter().filter_map(|id| self.records.get(*id));
                    let may_name = records.all(|record| space.may_read(record.name()).0);
                    return Some(if may_name { self.describe(&search, &last) } else { UNNAMED.to_owned() });
                }
            }
            at += 1;
        }
        None
    }

    /// Adds the requests that a request waits for in one queue. `None` if the budget is used up; the end of a cycle if
    /// there is one.
    fn expand<S: Keyspace>(
        &mut self,
        space: &mut S,
        search: &mut Search,
        at: usize,
        id: RecordId,
        origin: &Owner,
        own: &[RecordId],
    ) -> Option<Option<Closing>> {
        let waiter = search.nodes.get(at)?.waiter;
        let (place, mode) = self.waiters.get(waiter).map(|waiter| (waiter.place, waiter.mode()))?;
        let (Some(record), Some(first)) = (self.records.get(id), own.first().and_then(|id| self.records.get(*id)))
        else {
            return Some(None);
        };
        let (db, key) = (record.db, Rc::clone(&record.key));
        let name = Name { db, key: &key };
        let is_open = match search.seen.get(&id).and_then(|seen| seen.is_open) {
            Some(is_open) => is_open,
            None => own.contains(&id) || ask(space, search, name, first.db)?,
        };
        let before = search.seen.entry(id).or_default();
        before.is_open = Some(is_open);
        let before = *before;
        if !is_open {
            return search.pay(1).map(|()| None);
        }
        search.pay(QUEUE)?;
        // An upgrade has passed those that wait: they wait for it.
        let is_ahead = |waiter: &Waiter<T>| waiter.place < place && waiter.records.contains(&id);
        let first = search.nodes.first().map(|node| node.waiter)?;
        if at > 0 && self.waiters.get(first).is_some_and(is_ahead) {
            return Some(Some(Closing { at, over: id, by: As::WaiterAhead, through: None }));
        }
        let record = self.records.get(id)?;
        // Of those ahead, only requests for several locks lead to other queues: what the others wait for is in the way of
        // this one, too.
        let mut met: Vec<WaiterId> = Vec::new();
        let mut ahead = before.ahead;
        for (place, other) in record.queue.several_ahead(before.ahead, place) {
            search.pay(self.waiters.get(other).map_or(1, |other| cost(&other.owner)))?;
            ahead = Some(place);
            met.push(other);
        }
        let writer = self.writer_ahead(search, record, place)?;
        let holders = if mode == Mode::Exclusive || writer.is_some() { Mode::Exclusive } else { Mode::Shared };
        let is_new = ![Some(Mode::Exclusive), Some(holders)].contains(&before.holders);
        search.seen.insert(id, Seen { ahead, holders: if is_new { Some(holders) } else { before.holders }, ..before });
        for other in met {
            self.follow_waiter(search, (at, id, As::WaiterAhead), other, origin);
        }
        if !is_new {
            return Some(None);
        }
        self.look_at_holders(space, search, (at, id, holders), name, writer.filter(|writer| *writer != waiter), origin)
    }

    /// The first writer ahead of a place, or at it, whose owner waits once. `None` if the budget is used up.
    fn writer_ahead(&self, search: &mut Search, record: &Record, place: Place) -> Option<Option<WaiterId>> {
        for writer in record.queue.writers(place) {
            let Some(found) = self.waiters.get(writer) else { continue };
            search.pay(cost(&found.owner))?;
            if self.waits_once(&found.owner) {
                return Some(Some(writer));
            }
        }
        Some(None)
    }

    fn waits_once(&self, owner: &Owner) -> bool {
        self.waits.get(owner).is_some_and(|waits| waits.len() == 1)
    }

    /// Follows the holders in the way, each to where it waits. A request waits for its own owner only if a writer ahead
    /// does.
    fn look_at_holders<S: Keyspace>(
        &mut self,
        space: &mut S,
        search: &mut Search,
        (at, id, holders): (usize, RecordId, Mode),
        name: Name<'_>,
        writer: Option<WaiterId>,
        origin: &Owner,
    ) -> Option<Option<Closing>> {
        let record = self.records.get(id)?;
        let now = space.now().ms();
        let mut budget = search.budget;
        let (waits, bound) = (&self.waits, &record.bound);
        let mut next: Vec<WaiterId> = Vec::new();
        let mut is_closed = false;
        let look = |lock: &Lock| {
            let exclusive = lock.exclusive(now).into_iter();
            let shared = lock.live_by_deadline(now).filter(|hold| hold.mode == Mode::Shared);
            let shared = (holders == Mode::Exclusive).then_some(shared).into_iter().flatten();
            for hold in exclusive.chain(shared) {
                budget = budget.checked_sub(cost(&hold.owner))?;
                if bound.end_of(hold).is_some_and(|end| end.deadline() <= now) {
                    continue;
                }
                if hold.owner == *origin {
                    is_closed = true;
                } else if let Some([wait]) = waits.get(&hold.owner).map(|waits| waits.as_slice()) {
                    next.push(*wait);
                }
            }
            Some(())
        };
        // A key of another type has no holders.
        let is_paid = space.peek(name, look).unwrap_or(Some(())).is_some();
        self.note_removal(space, Some(id));
        search.budget = budget;
        if is_closed && at > 0 {
            return Some(Some(Closing { at, over: id, by: As::Holder, through: None }));
        }
        if is_closed && let Some(writer) = writer {
            return Some(Some(Closing { at, over: id, by: As::Holder, through: Some(writer) }));
        }
        for other in next {
            self.follow_waiter(search, (at, id, As::Holder), other, origin);
        }
        if is_paid { Some(None) } else { None }
    }

    /// Adds a request to the search, if its owner waits once and it was not met before.
    fn follow_waiter(&mut self, search: &mut Search, from: (usize, RecordId, As), id: WaiterId, origin: &Owner) {
        let Some(waiter) = self.waiters.get_mut(id) else { return };
        if waiter.search == self.searches || waiter.owner == *origin {
            return;
        }
        waiter.search = self.searches;
        if self.waits.get(&waiter.owner).is_some_and(|waits| waits.len() == 1) {
            search.nodes.push(Node { waiter: id, from: Some(from) });
        }
    }

    fn describe(&self, search: &Search, closing: &Closing) -> String {
        // Backwards, from the step that closes the cycle.
        let mut steps: Vec<(WaiterId, RecordId, As)> = Vec::new();
        let (mut over, mut by) = (closing.over, closing.by);
        if let Some(writer) = closing.through {
            steps.push((writer, over, by));
            by = As::WaiterAhead;
        }
        let mut at = Some(closing.at);
        while let Some(node) = at.and_then(|at| search.nodes.get(at)) {
            steps.push((node.waiter, over, by));
            at = node.from.map(|(from, led_here, led_by)| {
                (over, by) = (led_here, led_by);
                from
            });
        }
        steps.reverse();
        let owner =
            |id: WaiterId| self.waiters.get(id).map(|waiter| readable(&waiter.owner.text())).unwrap_or_default();
        let key = |id: RecordId| self.records.get(id).map(|record| readable(&record.key)).unwrap_or_default();
        let describe = |((waiter, over, by), (next, ..)): (&(WaiterId, RecordId, As), &(WaiterId, RecordId, As))| {
            let by = match by {
                As::Holder => "held by",
                As::WaiterAhead => "behind",
            };
            format!("{} waits for {} {by} {}", owner(*waiter), key(*over), owner(*next))
        };
        let next = steps.iter().cycle().skip(1);
        let parts: Vec<String> = steps.iter().zip(next).take(MAX_STEPS_SHOWN).map(describe).collect();
        let more = if steps.len() > MAX_STEPS_SHOWN { ", …" } else { "" };
        format!("{}{more}", parts.join(", "))
    }
}

/// Whether the search may look at this key, in the request's database. `None` if the budget is used up.
fn ask<S: Keyspace>(space: &mut S, search: &mut Search, name: Name<'_>, db: i32) -> Option<bool> {
    search.pay(KEY + name.key.len() / KEY_BYTES)?;
    if name.db != db {
        return Some(false);
    }
    let (may_read, ns) = space.may_read(name);
    search.pay(usize::try_from(ns / STEP_NS).unwrap_or(usize::MAX))?;
    Some(may_read)
}

/// Where a cycle closes: at this step, over this lock, through a request ahead or directly.
struct Closing {
    at: usize,
    over: RecordId,
    by: As,
    through: Option<WaiterId>,
}

/// The beginning of a name of any bytes and length.
fn readable(name: &[u8]) -> String {
    let shown = name.get(..MAX_BYTES_SHOWN).unwrap_or(name);
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

const MAX_BYTES_SHOWN: usize = 64;
const MAX_STEPS_SHOWN: usize = 8;
