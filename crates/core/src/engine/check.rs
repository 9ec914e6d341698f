//! What an engine remembers, laid open for the model checker: which states are the same, and whether the tables agree.

use std::collections::BTreeMap;

use super::load::Load;
use super::record::Attention;
use super::{Engine, WaiterId};
use crate::{ClientId, Lease, LeaseChoice, Mode, Name, Owner, Request, Token, UnixMs, Want};

/// Everything in an engine that decides what it does next, but its random numbers.
#[derive(Debug)]
pub struct Snapshot<'a, T> {
    /// The locks that need attention, in order of their names.
    pub records: Vec<RecordView<'a, T>>,
    /// The locks that are visited before the end of the turn, in this order.
    pub marked: Vec<Name<'a>>,
    /// The locks whose key needs another TTL.
    pub ttls: Vec<Name<'a>>,
    /// The timer does nothing before.
    pub not_before: UnixMs,
}

/// A lock that needs attention.
#[derive(Debug)]
pub struct RecordView<'a, T> {
    /// Where it is.
    pub name: Name<'a>,
    /// Who waits, the head first.
    pub queue: Vec<WaiterView<'a, T>>,
    /// The holds that are bound to clients.
    pub bound: Vec<BindingView<'a>>,
    /// The sessions that have ended and still have holds, in the order in which they are released from the end.
    pub ended: Vec<(ClientId, UnixMs, Option<Lease>)>,
    /// When its queue is due.
    pub queue_due: Option<UnixMs>,
    /// When the engine visits it; zero: before the end of the turn.
    pub visit_at: Option<UnixMs>,
    /// Whether its key lives longer than its leases.
    pub has_grace: bool,
    /// Whether its last waiter has left.
    pub was_deserted: bool,
    /// Whether its bindings are void.
    pub is_stale: bool,
}

/// A request that waits.
#[derive(Debug)]
pub struct WaiterView<'a, T> {
    /// By what the caller finds the client again.
    pub ticket: &'a T,
    /// The owner.
    pub owner: &'a Owner,
    /// What it wants.
    pub want: Want,
    /// The lease.
    pub lease: LeaseChoice,
    /// `REQUEST`.
    pub request: Option<&'a Request>,
    /// Whether the hold is bound to the client.
    pub binds: bool,
    /// The client.
    pub client: ClientId,
    /// Whether it stands before all that do not upgrade.
    pub is_upgrade: bool,
    /// Which of its locks was in the way when they were looked at last.
    pub in_the_way: usize,
}

/// A hold that is bound.
#[derive(Debug)]
pub struct BindingView<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// The mode.
    pub mode: Mode,
    /// The client.
    pub client: ClientId,
    /// The token.
    pub token: Token,
    /// The deadline.
    pub deadline: UnixMs,
    /// When the watchdog extends it; `None`: not any more.
    pub renew_at: Option<UnixMs>,
}

impl<T> Engine<T> {
    /// Lays open what the engine remembers.
    pub fn snapshot(&self) -> Snapshot<'_, T> {
        let mut records: Vec<RecordView<'_, T>> = self
            .records
            .values()
            .map(|record| RecordView {
                name: record.name(),
                queue: record.queue.iter().filter_map(|id| self.view(id)).collect(),
                bound: record.bound.views().collect(),
                ended: record.bound.ends().collect(),
                queue_due: record.queue_due,
                visit_at: [record.attention, record.renewal].into_iter().filter_map(visit_at).min(),
                has_grace: record.has_grace,
                was_deserted: record.was_deserted,
                is_stale: record.epoch < self.databases.epoch(record.db),
            })
            .collect();
        records.sort_by_key(|record| record.name);
        let marked = self.lanes.marked().filter_map(|id| self.records.get(id));
        Snapshot {
            records,
            marked: marked.map(|record| record.name()).collect(),
            ttls: self.ttls.iter().map(|(db, key)| Name { db: *db, key }).collect(),
            not_before: self.not_before,
        }
    }

    fn view(&self, id: WaiterId) -> Option<WaiterView<'_, T>> {
        let waiter = self.waiters.get(id)?;
        Some(WaiterView {
            ticket: &waiter.ticket,
            owner: &waiter.owner,
            want: waiter.want,
            lease: waiter.lease,
            request: waiter.request.as_deref(),
            binds: waiter.binds,
            client: waiter.client,
            is_upgrade: waiter.place.rank == super::queue::Rank::Upgrade,
            in_the_way: waiter.in_the_way,
        })
    }

    /// Checks that the tables agree: every waiter is in exactly the queues of its locks and among the waits of its owner,
    /// every record is found by its name and where it says that it is due.
    ///
    /// # Errors
    /// What does not agree.
    pub fn audit(&self) -> Result<(), String> {
        let expect = |is_so: bool, what: &str| if is_so { Ok(()) } else { Err(what.to_owned()) };
        let (mut places, mut queues, mut bound, mut at) = (0, 0, 0, 0);
        let mut loads: BTreeMap<ClientId, Load> = BTreeMap::new();
        for (id, record) in &self.records {
            expect(self.find(record.name()) == Some(id), "a record is not found by its name")?;
            places += record.queue.len();
            queues += usize::from(!record.queue.is_empty());
            bound += record.bound.len();
            let mut last = None;
            for waiter in record.queue.iter() {
                let waiter = self.waiters.get(waiter).ok_or("a queue names a waiter that is gone")?;
                expect(waiter.records.contains(&id), "a waiter is in a queue that it does not wait in")?;
                expect(last < Some(waiter.place), "a queue is out of order")?;
                last = Some(waiter.place);
            }
            expect(
                !record.is_idle() || record.attention != Attention::None,
                "a record without anything to remember stays",
            )?;
            let has_renewal = record.bound.next_renewal().is_some();
            expect(
                has_renewal || record.renewal == Attention::None,
                "a record has nothing to extend, but a time for it",
            )?;
            for (attention, agenda) in [(record.attention, &self.agenda), (record.renewal, &self.renewals)] {
                match attention {
                    Attention::None => {}
                    Attention::At(time) => {
                        at += 1;
                        expect(agenda.contains(&(time, id)), "a record is not in the agenda")?;
                    }
                    Attention::Due(due) => expect(self.lanes.has(due, id), "a record is not among those that are due")?,
                }
            }
            for (client, load) in record.bound.loads() {
                *loads.entry(client).or_default() += load;
            }
            for client in record.bound.clients().filter(|client| !record.bound.has_session_ended(*client)) {
                let is_known = self.clients.get(&client).is_some_and(|holds| holds.records.contains(&id));
                let leaves = self.leaving.get(&client).is_some_and(|leaving| leaving.records.contains(&id));
                expect(is_known || leaves, "a client is not known to have a hold")?;
            }
        }
        for (_, bound) in &self.old_bound {
            bound.loads().for_each(|(client, load)| *loads.entry(client).or_default() += load);
        }
        for (client, holds) in &self.clients {
            expect(loads.get(client).copied().unwrap_or(0) == holds.load, "a client's load is counted wrong")?;
        }
        expect(at == self.agenda.len() + self.renewals.len(), "the agenda names a record twice, or one that is gone")?;
        let counted = (self.places, self.queues, self.bound);
        expect(counted == (places, queues, bound), "places, queues or bound holds are counted wrong")?;
        for (id, waiter) in &self.waiters {
            for record in &waiter.records {
                let queue = self.records.get(*record).map(|record| &record.queue).ok_or("a waiter has no record")?;
                let times = queue.iter().filter(|other| *other == id).count();
                expect(times == 1, "a waiter is not in each of its queues once")?;
            }
            let times = self.waits.get(&waiter.owner).map_or(0, |ids| ids.iter().filter(|other| **other == id).count());
            expect(times == 1, "a waiter is not among the waits of its owner once")?;
        }
        let waits: usize = self.waits.values().map(|waits| waits.len()).sum();
        expect(waits == self.waiters.len(), "an owner has a wait that is gone")
    }
}

/// When a record is visited; those that are due are visited first.
fn visit_at(attention: Attention) -> Option<UnixMs> {
    match attention {
        Attention::None => None,
        Attention::At(at) => Some(at),
        Attention::Due(due) => Some(due.place.urgency),
    }
}
