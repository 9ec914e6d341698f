//! Whether a request that begins to wait would wait forever: for itself, through others.
//!
//! A request waits for every owner ahead of it in each of its queues, and for every holder that it, or a request ahead
//! of it, excludes. If one of these owners waits too, it waits for others in turn, and so on. An owner that waits on
//! several connections has several threads of control: the search leaves it and its requests out. It follows only locks
//! of the request's own database that the client may read, and gives up after [`BUDGET`] steps: then the request waits.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::engine::keyspace::Keyspace;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::registry::Registry;
use crate::engine::state::waiting::queue::Place;
use crate::engine::state::waiting::{Waiter, Waiters};
use crate::{Lock, Mode, Owner};

/// How many steps a search takes at most: about a millisecond. A step looks at one waiter or holder, whose
/// owner is short.
const BUDGET: usize = 8000;
/// How long a step takes, in ns: what was measured counts by it.
const STEP_NS: u64 = 125;
/// How many bytes of an owner cost one step more: it is read, and hashed.
const OWNER_BYTES: usize = 128;
/// The cost of looking into a key that is not the request's own, in steps, beside the cost of the ACL.
const KEY: usize = 17;
/// The cost of one more queue, in steps.
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

/// A search for the cycle that a request closes.
pub(super) struct Search<'e, T, S> {
    registry: &'e Registry,
    waiters: &'e mut Waiters<T>,
    space: &'e mut S,
    /// The owner of the request, and the locks it waits for.
    owner: Owner,
    own: SmallVec<[RecordId; 1]>,
    nodes: Vec<Node>,
    /// Up to where queues were looked at, and which holds.
    seen: BTreeMap<RecordId, Seen>,
    budget: usize,
    /// The locks whose keys the server has removed meanwhile.
    removed: SmallVec<[RecordId; 1]>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    /// The last place up to which requests for several locks were looked at.
    ahead: Option<Place>,
    holders: Option<Mode>,
    /// Whether the search may look at it, once that is known.
    is_open: Option<bool>,
}

/// Where a cycle closes: at this step, over this lock, through a request ahead or directly.
struct Closing {
    at: usize,
    over: RecordId,
    by: As,
    through: Option<WaiterId>,
}

/// Returns the cost of finding out where an owner waits, in steps.
fn cost(owner: &Owner) -> usize {
    1 + owner.heap_bytes() / OWNER_BYTES
}

impl<'e, T, S: Keyspace> Search<'e, T, S> {
    /// Returns a search from a request which has just joined its queues. `None` if it is not the only one of its owner.
    pub(super) fn new(
        registry: &'e Registry,
        waiters: &'e mut Waiters<T>,
        space: &'e mut S,
        origin: WaiterId,
    ) -> Option<Search<'e, T, S>> {
        let waiter = waiters.get(origin)?;
        waiters.only_one_of(&waiter.request.owner)?;
        let (own, owner) = (waiter.records.clone(), waiter.request.owner.clone());
        waiters.begin_search();
        Some(Search {
            registry,
            waiters,
            space,
            owner,
            own,
            nodes: vec![Node { waiter: origin, from: None }],
            seen: BTreeMap::new(),
            budget: BUDGET,
            removed: SmallVec::new(),
        })
    }

    /// Searches. Returns the cycle in words, if there is one, and the locks whose keys the server has removed meanwhile.
    pub(super) fn run(mut self) -> (Option<String>, SmallVec<[RecordId; 1]>) {
        let closing = self.find_closing();
        let cycle = closing.map(|closing| {
            // The request's own locks were searched without a question.
            let mut records = self.own.iter().filter_map(|id| self.registry.get(*id));
            let may_name = records.all(|record| self.space.may_read(record.name()).0);
            if may_name { self.describe(&closing) } else { UNNAMED.to_owned() }
        });
        (cycle, self.removed)
    }

    fn find_closing(&mut self) -> Option<Closing> {
        let mut at = 0;
        while let Some(waiter) = self.nodes.get(at).map(|node| node.waiter) {
            for record in self.waiters.get(waiter)?.records.clone() {
                if let Some(closing) = self.expand(at, record)? {
                    return Some(closing);
                }
            }
            at += 1;
        }
        None
    }

    /// Pays for some steps: whether the budget allows them.
    fn pay(&mut self, steps: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(steps)?;
        Some(())
    }

    /// Adds the requests that a request waits for in one queue. `None` if the budget is used up; the end of a cycle if
    /// there is one.
    fn expand(&mut self, at: usize, id: RecordId) -> Option<Option<Closing>> {
        let waiter = self.nodes.get(at)?.waiter;
        let (place, mode) = self.waiters.get(waiter).map(|waiter| (waiter.place, waiter.mode()))?;
        let record = self.registry.get(id)?;
        let is_open = match self.seen.get(&id).and_then(|seen| seen.is_open) {
            Some(is_open) => is_open,
            None => self.own.contains(&id) || self.query(record)?,
        };
        let before = self.seen.entry(id).or_default();
        before.is_open = Some(is_open);
        let before = *before;
        if !is_open {
            return self.pay(1).map(|()| None);
        }
        self.pay(QUEUE)?;
        // An upgrade has passed those that wait: they wait for it.
        let is_ahead = |waiter: &Waiter<T>| waiter.place < place && waiter.records.contains(&id);
        let first = self.nodes.first().map(|node| node.waiter)?;
        if at > 0 && self.waiters.get(first).is_some_and(is_ahead) {
            return Some(Some(Closing { at, over: id, by: As::WaiterAhead, through: None }));
        }
        // Only requests for several locks, of those ahead, lead to other queues: what the others wait for is in the way
        // of
        // this one, too.
        let mut met: Vec<WaiterId> = Vec::new();
        let mut ahead = before.ahead;
        for (place, other) in record.queue.several_ahead(before.ahead, place) {
            self.pay(self.waiters.get(other).map_or(1, |other| cost(&other.request.owner)))?;
            ahead = Some(place);
            met.push(other);
        }
        let writer = self.writer_ahead(record, place)?;
        let holders = if mode == Mode::Exclusive || writer.is_some() { Mode::Exclusive } else { Mode::Shared };
        let is_new = ![Some(Mode::Exclusive), Some(holders)].contains(&before.holders);
        self.seen.insert(id, Seen { ahead, holders: if is_new { Some(holders) } else { before.holders }, ..before });
        for other in met {
            self.follow_waiter((at, id, As::WaiterAhead), other);
        }
        if !is_new {
            return Some(None);
        }
        self.look_at_holders(at, record, holders, writer.filter(|writer| *writer != waiter))
    }

    /// Returns whether the search may look at this lock, in the request's database. `None` if the budget is used up.
    fn query(&mut self, record: &Record) -> Option<bool> {
        self.pay(KEY + record.key.len() / KEY_BYTES)?;
        let first = self.own.first().and_then(|id| self.registry.get(*id))?;
        if record.db != first.db {
            return Some(false);
        }
        let (may_read, ns) = self.space.may_read(record.name());
        self.pay(usize::try_from(ns / STEP_NS).unwrap_or(usize::MAX))?;
        Some(may_read)
    }

    /// Returns the first writer ahead of a place, or at it, whose owner waits once. `None` if the budget is used up.
    fn writer_ahead(&mut self, record: &Record, place: Place) -> Option<Option<WaiterId>> {
        for writer in record.queue.writers(place) {
            let Some(found) = self.waiters.get(writer) else { continue };
            let (cost, waits_once) =
                (cost(&found.request.owner), self.waiters.only_one_of(&found.request.owner).is_some());
            self.pay(cost)?;
            if waits_once {
                return Some(Some(writer));
            }
        }
        Some(None)
    }

    /// Follows the holders in the way, each to where it waits. A request waits for its own owner only if a writer ahead
    /// does.
    fn look_at_holders(
        &mut self,
        at: usize,
        record: &Record,
        holders: Mode,
        writer: Option<WaiterId>,
    ) -> Option<Option<Closing>> {
        let now = self.space.now().ms();
        let mut budget = self.budget;
        let (waiters, bound, origin) = (&*self.waiters, &record.bound, &self.owner);
        let mut next: Vec<WaiterId> = Vec::new();
        let mut is_closed = false;
        let look = |lock: &Lock| {
            let has_bindings = bound.are_of(lock);
            let exclusive = lock.exclusive(now).into_iter();
            let shared = lock.live_by_deadline(now).filter(|hold| hold.mode == Mode::Shared);
            let shared = (holders == Mode::Exclusive).then_some(shared).into_iter().flatten();
            for hold in exclusive.chain(shared) {
                budget = budget.checked_sub(cost(&hold.owner))?;
                if has_bindings && bound.end_of(hold).is_some_and(|end| end.deadline() <= now) {
                    continue;
                }
                if hold.owner == *origin {
                    is_closed = true;
                } else if let Some(wait) = waiters.only_one_of(&hold.owner) {
                    next.push(wait);
                }
            }
            Some(())
        };
        // A key of another type has no holders.
        let is_paid = self.space.peek(record.name(), look).unwrap_or(Some(())).is_some();
        if self.space.has_removed() {
            self.removed.push(record.id);
        }
        self.budget = budget;
        if is_closed && (at > 0 || writer.is_some()) {
            let through = if at > 0 { None } else { writer };
            return Some(Some(Closing { at, over: record.id, by: As::Holder, through }));
        }
        for other in next {
            self.follow_waiter((at, record.id, As::Holder), other);
        }
        is_paid.then_some(None)
    }

    /// Adds a request to the search, if its owner waits once and it was not met before.
    fn follow_waiter(&mut self, from: (usize, RecordId, As), id: WaiterId) {
        let Some(waiter) = self.waiters.get(id).filter(|waiter| waiter.request.owner != self.owner) else { return };
        let waits_once = self.waiters.only_one_of(&waiter.request.owner).is_some();
        if self.waiters.mark_met(id) && waits_once {
            self.nodes.push(Node { waiter: id, from: Some(from) });
        }
    }

    fn describe(&self, closing: &Closing) -> String {
        // Backwards, from the step that closes the cycle.
        let mut steps: Vec<(WaiterId, RecordId, As)> = Vec::new();
        let (mut over, mut by) = (closing.over, closing.by);
        if let Some(writer) = closing.through {
            steps.push((writer, over, by));
            by = As::WaiterAhead;
        }
        let mut at = Some(closing.at);
        while let Some(node) = at.and_then(|at| self.nodes.get(at)) {
            steps.push((node.waiter, over, by));
            at = node.from.map(|(from, led_here, led_by)| {
                (over, by) = (led_here, led_by);
                from
            });
        }
        steps.reverse();
        let owner = |id: WaiterId| {
            self.waiters.get(id).map(|waiter| readable(&waiter.request.owner.text())).unwrap_or_default()
        };
        let key = |id: RecordId| self.registry.get(id).map(|record| readable(&record.key)).unwrap_or_default();
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

/// Returns the beginning of a name of any bytes and length.
fn readable(name: &[u8]) -> String {
    let shown = name.get(..MAX_BYTES_SHOWN).unwrap_or(name);
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

const MAX_BYTES_SHOWN: usize = 64;
const MAX_STEPS_SHOWN: usize = 8;
