//! The state of an engine for the model checker: whether two states are the same, and whether the tables agree.

use std::collections::BTreeMap;

use crate::engine::state::due::Backlog;
use crate::engine::state::engine::Engine;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::load::Load;
use crate::engine::state::parts::Parts;
use crate::engine::state::records::attention::Attention;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::session_holds::views::BindingView;
use crate::engine::state::waiting::queue::Rank;
use crate::{ClientId, Lease, Name, Request, SessionKey, UnixMs};

/// Everything in an engine that decides what it does next, except its random numbers.
#[derive(Debug)]
pub struct Snapshot<'a, T> {
    /// The locks that need attention, in order of their names.
    pub records: Vec<RecordView<'a, T>>,
    /// The locks that are visited before the end of the turn, in this order.
    pub marked: Vec<Name<'a>>,
    /// The locks whose key needs another TTL.
    pub ttls: Vec<Name<'a>>,
    /// The timer does nothing before this time.
    pub not_before: UnixMs,
}

/// A lock that needs attention.
#[derive(Debug)]
pub struct RecordView<'a, T> {
    /// The database and the key.
    pub name: Name<'a>,
    /// The waiters, the head first.
    pub queue: Vec<WaiterView<'a, T>>,
    /// The holds that are bound to sessions.
    pub bound: Vec<BindingView<'a>>,
    /// The sessions that have ended and still have holds. The holds of the last one are released first.
    pub ended: Vec<(SessionKey, UnixMs, Option<Lease>)>,
    /// When its queue is due.
    pub queue_due: Option<UnixMs>,
    /// When the engine visits the lock, or the urgency of a lock that is due.
    pub visit_at: Option<UnixMs>,
    /// Whether its key lives longer than its leases.
    pub has_ttl_grace: bool,
    /// Whether its last waiter has left.
    pub lost_last_waiter: bool,
    /// Whether its bindings are void.
    pub is_stale: bool,
}

/// A request that waits.
#[derive(Debug)]
pub struct WaiterView<'a, T> {
    /// The value by which the caller finds the client.
    pub ticket: &'a T,
    /// The request.
    pub request: &'a Request,
    /// The client.
    pub client: ClientId,
    /// Whether it is an upgrade, which stands before all other requests.
    pub is_upgrade: bool,
    /// The index of the lock that was in the way when the locks were looked at last.
    pub in_the_way: usize,
}

impl<T> Engine<T> {
    /// Returns the state of the engine.
    pub fn snapshot(&self) -> Snapshot<'_, T> {
        let mut records: Vec<RecordView<'_, T>> = self
            .registry
            .iter()
            .map(|record| RecordView {
                name: record.name(),
                queue: record.queue.iter().filter_map(|id| self.view(id)).collect(),
                bound: record.bound.views().collect(),
                ended: record.bound.ends().collect(),
                queue_due: record.queue_due,
                visit_at: [record.attention, record.renewal].into_iter().filter_map(visit_at).min(),
                has_ttl_grace: record.has_ttl_grace,
                lost_last_waiter: record.lost_last_waiter,
                is_stale: self.registry.is_stale(record),
            })
            .collect();
        records.sort_by_key(|record| record.name);
        let marked = self.parts.backlog.marked().filter_map(|id| self.registry.get(id));
        Snapshot {
            records,
            marked: marked.map(|record| record.name()).collect(),
            ttls: self.parts.backlog.ttls().collect(),
            not_before: self.parts.backlog.not_before,
        }
    }

    fn view(&self, id: WaiterId) -> Option<WaiterView<'_, T>> {
        let waiter = self.parts.waiters.get(id)?;
        Some(WaiterView {
            ticket: &waiter.ticket,
            request: &waiter.request,
            client: waiter.client,
            is_upgrade: waiter.place.rank == Rank::Upgrade,
            in_the_way: waiter.in_the_way,
        })
    }

    /// Checks that the tables agree: every waiter is in exactly the queues of its locks and among the waits of its
    /// owner, every record is found by its name and where it says that it is due.
    ///
    /// # Errors
    /// The first disagreement.
    pub fn audit(&self) -> Result<(), String> {
        let expect = |is_so: bool, what: &str| if is_so { Ok(()) } else { Err(what.to_owned()) };
        let Parts { waiters, sessions, backlog, .. } = &self.parts;
        let (mut places, mut queues, mut bound, mut times) = (0, 0, 0, 0);
        let mut loads: BTreeMap<SessionKey, (Load, usize)> = BTreeMap::new();
        for record in self.registry.iter() {
            expect(self.registry.find(record.name()) == Some(record.id), "a record is not found by its name")?;
            places += record.queue.len();
            queues += usize::from(!record.queue.is_empty());
            bound += record.bound.len();
            self.audit_record(record)?;
            times += [record.attention, record.renewal].iter().filter(|place| **place != Attention::None).count();
            for (key, load) in record.bound.loads() {
                let (sum, holds) = loads.entry(key).or_default();
                (*sum, *holds) = (*sum + load, *holds + 1);
            }
        }
        expect(sessions.audit(&loads), "a session's load, or its holds, are counted wrong")?;
        expect(times == backlog.places(), "the backlog names a record twice, or one that is gone")?;
        let counted = (waiters.places(), waiters.queues(), sessions.bound());
        expect(counted == (places, queues, bound), "places, queues or bound holds are counted wrong")?;
        for (id, waiter) in waiters.iter() {
            for record in &waiter.records {
                let queue = self.registry.get(*record).map(|record| &record.queue).ok_or("a waiter has no record")?;
                let times = queue.iter().filter(|other| *other == id).count();
                expect(times == 1, "a waiter is not in each of its queues once")?;
            }
            let times = waiters.of_owner(&waiter.request.owner).iter().filter(|other| **other == id).count();
            expect(times == 1, "a waiter is not among the waits of its owner once")?;
        }
        expect(waiters.knows_sessions(), "the waits of a session are listed wrong")?;
        expect(waiters.knows_places(), "the places of a user are counted wrong")?;
        expect(waiters.count_by_owner() == waiters.len(), "an owner has a wait that is gone")
    }

    fn audit_record(&self, record: &Record) -> Result<(), String> {
        let expect = |is_so: bool, what: &str| if is_so { Ok(()) } else { Err(what.to_owned()) };
        let mut last = None;
        for waiter in record.queue.iter() {
            let waiter = self.parts.waiters.get(waiter).ok_or("a queue names a waiter that is gone")?;
            expect(waiter.records.contains(&record.id), "a waiter is in a queue that it does not wait in")?;
            expect(last < Some(waiter.place), "a queue is out of order")?;
            last = Some(waiter.place);
        }
        let is_kept = !record.is_idle() || record.attention != Attention::None;
        expect(is_kept, "a record without anything to remember stays")?;
        expect(Backlog::has_right_renewal(record), "a lock is visited for renewals when it has none, or not in time")?;
        let payer = self.parts.waiters.payer(&record.queue);
        expect(
            Backlog::has_right_attention(record, payer),
            "a queue is visited without a reason, too late, or at the cost of the wrong client",
        )?;
        expect(self.parts.backlog.has(record), "a record is not where it says that it is due")?;
        for key in record.bound.keys().filter(|key| !record.bound.has_session_ended(*key)) {
            expect(self.parts.sessions.knows(key, record.id), "a session is not known to have a hold")?;
        }
        Ok(())
    }
}

/// Returns when a record is visited. Records that are due have their urgency instead: zero, or the deadline of the hold
/// that is renewed.
fn visit_at(attention: Attention) -> Option<UnixMs> {
    match attention {
        Attention::None => None,
        Attention::At(at) => Some(at),
        Attention::Due(due) => Some(due.position.urgency),
    }
}
