//! The search for a deadlock: a request that begins to wait may close a cycle of owners that wait for each other.
//!
//! A request waits for every owner ahead of it in each of its queues, and for every holder that it, or a request ahead
//! of it, excludes. If one of these owners waits too, it waits for others in turn, and so on. An owner that waits on
//! several connections has several threads of control: the search leaves it and its requests out. The search follows
//! only locks of the request's own database that the client may read, and gives up when its budget of steps is used up
//! (`SearchBudget` in `state/budget.rs`): then the request waits.

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

/// How long a step takes, in ns. The time of a check of the ACL is converted to steps with this number.
const STEP_NS: u64 = 125;
/// How many bytes of an owner's name cost one step more: the search reads and hashes the name.
const OWNER_BYTES: usize = 128;
/// The cost of looking into a lock that the first request does not wait for, in steps, without the check of the ACL.
const KEY: usize = 17;
/// The cost of one more queue, in steps.
const QUEUE: usize = 3;
/// How many bytes of a key's name cost one step more.
const KEY_BYTES: usize = 200;

/// The description of a cycle for a client that may not see the owners in it.
const UNNAMED: &str = "the owners in the way wait for this one (DLOCK.INFO, which this user may not run, names them)";

/// A waiting request that the search has reached.
struct Node {
    waiter: WaiterId,
    /// The node that waits for this request's owner, the lock it waits for, and how the owner blocks it. `None` for the
    /// request that the search begins with.
    from: Option<(usize, RecordId, BlockedBy)>,
}

/// How an owner blocks a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockedBy {
    Holder,
    WaiterAhead,
}

/// A search for the cycle that a request closes.
pub(super) struct Search<'e, T, S> {
    registry: &'e Registry,
    waiters: &'e mut Waiters<T>,
    space: &'e mut S,
    /// The owner of the request that the search begins with.
    owner: Owner,
    /// The locks that this request waits for.
    own: SmallVec<[RecordId; 1]>,
    nodes: Vec<Node>,
    /// The part of each lock's queue and holds that was looked at.
    seen: BTreeMap<RecordId, Seen>,
    /// How many steps are left.
    budget: usize,
    /// The locks whose expired keys the server has removed during the search.
    removed: SmallVec<[RecordId; 1]>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    /// The last place up to which requests for several locks were looked at.
    ahead: Option<Place>,
    /// The holds that were looked at: all for `Exclusive`, because all are in its way; the exclusive one for `Shared`.
    holders: Option<Mode>,
    /// Whether the search may look at the lock; `None` while that is not known.
    is_open: Option<bool>,
}

/// The end of a cycle.
struct Closing {
    /// The node that waits for the owner of the first request.
    at: usize,
    /// The lock that this node waits for.
    over: RecordId,
    /// How the owner of the first request blocks this node.
    by: BlockedBy,
    /// The request between the two: a writer ahead of the first request, which waits for the owner's own hold. `None`
    /// if the node waits for the owner itself.
    through: Option<WaiterId>,
}

/// Returns the cost of looking up the requests of an owner, in steps.
fn cost(owner: &Owner) -> usize {
    1 + owner.heap_bytes() / OWNER_BYTES
}

impl<'e, T, S: Keyspace> Search<'e, T, S> {
    /// Returns a search of at most `budget` steps from a request which has just joined its queues. `None` if its owner
    /// has other waiting requests.
    pub(super) fn new(
        registry: &'e Registry,
        waiters: &'e mut Waiters<T>,
        space: &'e mut S,
        origin: WaiterId,
        budget: usize,
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
            budget,
            removed: SmallVec::new(),
        })
    }

    /// Searches. Returns the description of the cycle, if there is one, the locks whose expired keys the server has
    /// removed, and how many steps are left.
    pub(super) fn run(mut self) -> (Option<String>, SmallVec<[RecordId; 1]>, usize) {
        let closing = self.find_closing();
        let cycle = closing.map(|closing| {
            // The request's own locks were searched without a check of the client's right to read them.
            let mut records = self.own.iter().filter_map(|id| self.registry.get(*id));
            let may_name = records.all(|record| self.space.may_read(record.name()).0);
            if may_name { self.describe(&closing) } else { UNNAMED.to_owned() }
        });
        (cycle, self.removed, self.budget)
    }

    /// Expands the nodes in order. Returns the end of a cycle; `None` without one, or if the budget is used up.
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

    /// Takes some steps from the budget. `None` if the budget does not have them; it is used up then.
    fn pay(&mut self, steps: usize) -> Option<()> {
        let left = self.budget.checked_sub(steps);
        self.budget = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// Adds the requests that the request of node `at` waits for in one queue. Returns the end of a cycle if there is
    /// one; `None` if the budget is used up.
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
        // The first request has joined last, so only an upgrade is ahead of others, which wait for its owner.
        let is_ahead = |waiter: &Waiter<T>| waiter.place < place && waiter.records.contains(&id);
        let first = self.nodes.first().map(|node| node.waiter)?;
        if at > 0 && self.waiters.get(first).is_some_and(is_ahead) {
            return Some(Some(Closing { at, over: id, by: BlockedBy::WaiterAhead, through: None }));
        }
        // Requests ahead lead to other queues only if they are for several locks. The others are blocked by holders
        // that block this request, too.
        let mut met: Vec<WaiterId> = Vec::new();
        let mut ahead = before.ahead;
        for (place, other) in record.queue.several_ahead(before.ahead, place) {
            self.pay(self.waiters.get(other).map_or(1, |other| cost(&other.request.owner)))?;
            ahead = Some(place);
            met.push(other);
        }
        let writer = self.writer_ahead(record, place)?;
        // A request behind a writer waits for all holders that the writer waits for.
        let holders = if mode == Mode::Exclusive || writer.is_some() { Mode::Exclusive } else { Mode::Shared };
        let is_new = ![Some(Mode::Exclusive), Some(holders)].contains(&before.holders);
        self.seen.insert(id, Seen { ahead, holders: if is_new { Some(holders) } else { before.holders }, ..before });
        for other in met {
            self.follow_waiter((at, id, BlockedBy::WaiterAhead), other);
        }
        if !is_new {
            return Some(None);
        }
        self.look_at_holders(at, record, holders, writer.filter(|writer| *writer != waiter))
    }

    /// Returns whether the search may look at this lock: it is in the first request's database, and the client may read
    /// it. `None` if the budget is used up.
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

    /// Adds the requests of the holders that block the request of node `at`. A hold of the first request's owner closes
    /// a cycle. For the first request itself, it does so only if a writer ahead waits for the hold.
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
                // A hold whose session has ended counts as released.
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
            return Some(Some(Closing { at, over: record.id, by: BlockedBy::Holder, through }));
        }
        for other in next {
            self.follow_waiter((at, record.id, BlockedBy::Holder), other);
        }
        is_paid.then_some(None)
    }

    /// Adds a request to the search, if its owner waits once and it was not met before.
    fn follow_waiter(&mut self, from: (usize, RecordId, BlockedBy), id: WaiterId) {
        let Some(waiter) = self.waiters.get(id).filter(|waiter| waiter.request.owner != self.owner) else { return };
        let waits_once = self.waiters.only_one_of(&waiter.request.owner).is_some();
        if self.waiters.mark_met(id) && waits_once {
            self.nodes.push(Node { waiter: id, from: Some(from) });
        }
    }

    /// Returns one line for people: each owner of the cycle, its lock, and how the next owner blocks it.
    fn describe(&self, closing: &Closing) -> String {
        // The steps are collected backwards, from the one that closes the cycle.
        let mut steps: Vec<(WaiterId, RecordId, BlockedBy)> = Vec::new();
        let (mut over, mut by) = (closing.over, closing.by);
        if let Some(writer) = closing.through {
            steps.push((writer, over, by));
            by = BlockedBy::WaiterAhead;
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
        type Step = (WaiterId, RecordId, BlockedBy);
        let describe = |((waiter, over, by), (next, ..)): (&Step, &Step)| {
            let by = match by {
                BlockedBy::Holder => "held by",
                BlockedBy::WaiterAhead => "behind",
            };
            format!("{} waits for {} {by} {}", owner(*waiter), key(*over), owner(*next))
        };
        let next = steps.iter().cycle().skip(1);
        let parts: Vec<String> = steps.iter().zip(next).take(MAX_STEPS_SHOWN).map(describe).collect();
        let more = if steps.len() > MAX_STEPS_SHOWN { ", …" } else { "" };
        format!("{}{more}", parts.join(", "))
    }
}

/// Returns the beginning of a name, escaped to printable ASCII.
fn readable(name: &[u8]) -> String {
    let shown = name.get(..MAX_BYTES_SHOWN).unwrap_or(name);
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

/// How many bytes of a name, and how many steps of a cycle, a description has.
const MAX_BYTES_SHOWN: usize = 64;
const MAX_STEPS_SHOWN: usize = 8;
