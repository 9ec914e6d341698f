//! The kinds of work on locks. Each has its share of the timer's time, however much work the others have.

use crate::engine::state::due::turns::Turns;
use crate::engine::state::ids::RecordId;
use crate::engine::state::records::attention::{Due, Lane};
use crate::{ClientId, UnixMs};

impl Lane {
    const ALL: [Lane; 4] = [Lane::Queues, Lane::Renewals, Lane::Ended, Lane::Lapsed];

    /// Returns the factor by which the time of this kind of work counts. Work that no client waits for gets a smaller
    /// share, because a command on such a lock does the work that is due there first.
    fn weight(self) -> u64 {
        match self {
            Lane::Queues | Lane::Renewals => 1,
            Lane::Ended => 2,
            Lane::Lapsed => 8,
        }
    }
}

/// All locks that are due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    queues: Work,
    renewals: Work,
    ended: Work,
    lapsed: Work,
    /// The highest `weighted_us` of all lanes that were served. Without work in any, the next one begins here.
    latest: u64,
}

/// The locks of one kind of work.
#[derive(Clone, Debug, Default)]
struct Work {
    turns: Turns,
    /// The time that the work took, multiplied by its weight.
    weighted_us: u64,
}

impl Lanes {
    /// Returns whether no lock is due.
    pub(crate) fn is_empty(&self) -> bool {
        Lane::ALL.into_iter().all(|lane| self.lane(lane).turns.is_empty())
    }

    /// Returns a position behind all locks of the same client and urgency, for [`Lanes::insert`].
    pub(crate) fn position(&mut self, lane: Lane, client: ClientId, urgency: UnixMs) -> Due {
        Due { lane, position: self.lane_mut(lane).turns.position(client, urgency) }
    }

    /// Adds a lock. O(log n).
    pub(crate) fn insert(&mut self, due: Due, id: RecordId) {
        if self.lane(due.lane).turns.is_empty() {
            let start = self.start();
            let work = self.lane_mut(due.lane);
            work.weighted_us = work.weighted_us.max(start);
        }
        self.lane_mut(due.lane).turns.insert(due.position, id);
    }

    /// Returns where a lane begins that gets work again: beside the lane that is served next. So the new lane neither
    /// catches up on the time without work, nor waits until the others have caught up with a lane that counts
    /// eightfold.
    fn start(&self) -> u64 {
        let with_work = Lane::ALL.into_iter().map(|lane| self.lane(lane)).filter(|work| !work.turns.is_empty());
        with_work.map(|work| work.weighted_us).min().unwrap_or(self.latest)
    }

    /// Takes a lock out. O(log n).
    pub(crate) fn remove(&mut self, due: Due) {
        self.lane_mut(due.lane).turns.remove(due.position);
    }

    /// Returns the lock that is visited next, of the kind of work that has taken the least weighted time.
    pub(crate) fn first(&mut self) -> Option<(Due, RecordId)> {
        let has_work = |lane: &Lane| !self.lane(*lane).turns.is_empty();
        let lane = Lane::ALL.into_iter().filter(has_work).min_by_key(|lane| self.lane(*lane).weighted_us)?;
        let (position, id) = self.lane_mut(lane).turns.first()?;
        Some((Due { lane, position }, id))
    }

    /// Charges a lane and a client for a visit that took this many µs.
    pub(crate) fn charge(&mut self, due: Due, us: u64) {
        let work = self.lane_mut(due.lane);
        // A visit counts at least 1 µs, so that no lane stays the first one.
        work.weighted_us += us.max(1) * due.lane.weight();
        work.turns.charge(due.position.client, us);
        self.latest = self.latest.max(self.lane(due.lane).weighted_us);
    }

    /// Returns the locks that are due to serve their queues or to release ended holds, in order.
    #[cfg(feature = "check")]
    pub(crate) fn marked(&self) -> impl Iterator<Item = RecordId> {
        self.queues.turns.iter().chain(self.ended.turns.iter())
    }

    /// Returns how many locks have a position.
    #[cfg(feature = "check")]
    pub(crate) fn len(&self) -> usize {
        Lane::ALL.into_iter().map(|lane| self.lane(lane).turns.iter().count()).sum()
    }

    /// Returns whether a lock has this position.
    #[cfg(feature = "check")]
    pub(crate) fn has(&self, due: Due, id: RecordId) -> bool {
        self.lane(due.lane).turns.has(due.position, id)
    }

    fn lane(&self, lane: Lane) -> &Work {
        match lane {
            Lane::Queues => &self.queues,
            Lane::Renewals => &self.renewals,
            Lane::Ended => &self.ended,
            Lane::Lapsed => &self.lapsed,
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut Work {
        match lane {
            Lane::Queues => &mut self.queues,
            Lane::Renewals => &mut self.renewals,
            Lane::Ended => &mut self.ended,
            Lane::Lapsed => &mut self.lapsed,
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    /// The locks of a test.
    #[derive(Default)]
    struct Locks(SlotMap<RecordId, ()>);

    impl Locks {
        /// Adds a lock that is due. Returns its lane and position.
        fn add(&mut self, lanes: &mut Lanes, lane: Lane, client: u64, urgency: u64) -> Due {
            let due = lanes.position(lane, ClientId(client), UnixMs::new(urgency));
            lanes.insert(due, self.0.insert(()));
            due
        }
    }

    #[test]
    fn no_kind_of_work_waits_for_all_of_another() {
        let (mut locks, mut lanes) = (Locks::default(), Lanes::default());
        // Each lock belongs to another client, and is as urgent as possible.
        (0..10_000).for_each(|client| _ = locks.add(&mut lanes, Lane::Ended, client, 0));
        (0..10_000).for_each(|client| _ = locks.add(&mut lanes, Lane::Queues, client, 0));
        (0..20).for_each(|_| _ = locks.add(&mut lanes, Lane::Renewals, 1, 90_000));
        (0..20).for_each(|_| _ = locks.add(&mut lanes, Lane::Lapsed, 2, 90_000));
        let mut order = Vec::new();
        while let Some((due, _)) = lanes.first() {
            lanes.remove(due);
            lanes.charge(due, 10);
            order.push(due.lane);
        }
        // By the weights, a lane of weight 1 has 8 of 21 visits, and a lane of weight 8 has 1 of 21.
        let last = |lane| order.iter().rposition(|other| *other == lane).unwrap();
        assert!(last(Lane::Renewals) < 60, "{}", last(Lane::Renewals));
        assert!(last(Lane::Lapsed) < 500, "{}", last(Lane::Lapsed));
        assert_eq!(order.len(), 20_040);
    }

    #[test]
    fn work_that_comes_later_does_not_catch_up_on_the_time_before() {
        let (mut locks, mut lanes) = (Locks::default(), Lanes::default());
        let visit = |lanes: &mut Lanes| {
            let (due, _) = lanes.first().unwrap();
            lanes.remove(due);
            lanes.charge(due, 10);
            due.lane
        };
        (0..1000).for_each(|client| _ = locks.add(&mut lanes, Lane::Queues, client, 0));
        (0..500).for_each(|_| _ = visit(&mut lanes));
        (0..1000).for_each(|client| _ = locks.add(&mut lanes, Lane::Renewals, client, 0));
        let renewals = (0..100).filter(|_| visit(&mut lanes) == Lane::Renewals).count();
        assert!((40..=60).contains(&renewals), "{renewals}");
    }

    /// A visit takes long if the machine runs other programs meanwhile.
    #[test]
    fn a_waiter_does_not_wait_for_a_visit_that_took_long() {
        let (mut locks, mut lanes) = (Locks::default(), Lanes::default());
        (0..1000).for_each(|client| _ = locks.add(&mut lanes, Lane::Renewals, client, 0));
        let lapsed = locks.add(&mut lanes, Lane::Lapsed, 1, 0);
        lanes.charge(lapsed, 1000);
        locks.add(&mut lanes, Lane::Queues, 2, 0);
        assert_eq!(lanes.first().map(|(due, _)| due.lane), Some(Lane::Queues));
    }
}
