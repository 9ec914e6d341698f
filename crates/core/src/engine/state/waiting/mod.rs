//! The requests that wait, by id and by owner, and how many places they take in queues.

pub(crate) mod queue;

use std::collections::BTreeSet;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use slotmap::{KeyData, SlotMap};
use smallvec::SmallVec;

use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::waiting::queue::{Place, Queue, Rank};
use crate::{BindTo, ClientId, Mode, NamedId, Now, Owner, Request, SessionKey};

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter<T> {
    /// The value by which the caller finds the client.
    pub ticket: T,
    pub request: Request,
    pub client: ClientId,
    /// The user of the client; `None`: it has none.
    pub user: Option<Rc<[u8]>>,
    /// Since when it waits: Unix time in µs.
    pub since_us: u64,
    pub place: Place,
    /// The locks it waits for, in the order of the command that first took the place. A repeat may name them in another
    /// order.
    pub records: SmallVec<[RecordId; 1]>,
    /// The index in `records` of the lock that was in the way when the request was evaluated last.
    pub in_the_way: usize,
    /// The number of the last deadlock search that met it.
    pub search: u64,
}

impl<T> Waiter<T> {
    /// Returns whether it waits for several locks together.
    pub(crate) fn is_multiple(&self) -> bool {
        self.records.len() > 1
    }

    pub(crate) fn mode(&self) -> Mode {
        self.request.want.mode()
    }

    /// Returns the session that a grant binds the hold to.
    pub(crate) fn session(&self) -> Option<SessionKey> {
        self.request.session_key(self.client)
    }
}

/// The client that sends a request, its user, and the time.
pub(crate) struct Sender {
    pub client: ClientId,
    /// `None`: the client has none.
    pub user: Option<Rc<[u8]>>,
    pub since: Now,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiters<T> {
    waiters: SlotMap<WaiterId, Waiter<T>>,
    by_owner: HashMap<Owner, SmallVec<[WaiterId; 1]>, FixedState>,
    /// The waiters whose grant is bound to a named session.
    by_session: BTreeSet<(NamedId, WaiterId)>,
    /// How many requests have queued so far.
    arrivals: u64,
    /// How many places in queues are taken: a request for several locks takes several.
    places: usize,
    /// How many places the requests of each user take.
    places_of: HashMap<Rc<[u8]>, usize, FixedState>,
    /// How many queues have a waiter.
    queues: usize,
    /// How many deadlock searches there were: the number of the last one.
    searches: u64,
}

impl<T> Waiters<T> {
    pub(crate) fn new(hasher: FixedState) -> Waiters<T> {
        Waiters {
            waiters: SlotMap::with_key(),
            by_owner: HashMap::with_hasher(hasher.clone()),
            by_session: BTreeSet::new(),
            arrivals: 0,
            places: 0,
            places_of: HashMap::with_hasher(hasher),
            queues: 0,
            searches: 0,
        }
    }

    /// Returns how many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns how many places in queues all requests take.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// Returns how many places the requests of a user take.
    pub(crate) fn places_of(&self, user: &[u8]) -> usize {
        self.places_of.get(user).copied().unwrap_or(0)
    }

    /// Returns the name of a user, as one value that all waiting requests of the user share.
    pub(crate) fn share_name(&self, user: &[u8]) -> Rc<[u8]> {
        self.places_of.get_key_value(user).map_or_else(|| Rc::from(user), |(name, _)| Rc::clone(name))
    }

    /// Changes the number of places that the requests of a user take by `more`.
    fn count_places_of(&mut self, user: Option<&Rc<[u8]>>, more: isize) {
        let Some(user) = user else { return };
        let places = self.places_of.entry_ref(user).or_default();
        *places = places.saturating_add_signed(more);
        if *places == 0 {
            self.places_of.remove(user);
        }
    }

    /// Returns how many queues have a waiter.
    pub(crate) fn queues(&self) -> usize {
        self.queues
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter<T>)> {
        self.waiters.iter()
    }

    pub(crate) fn get(&self, id: WaiterId) -> Option<&Waiter<T>> {
        self.waiters.get(id)
    }

    /// Returns the head of a queue.
    pub(crate) fn head(&self, queue: &Queue) -> Option<(WaiterId, &Waiter<T>)> {
        let id = queue.head()?;
        let waiter = self.waiters.get(id);
        debug_assert!(waiter.is_some(), "a queue names a waiter that is gone");
        Some((id, waiter?))
    }

    /// Returns the client whose account pays for a visit of the lock with this queue: that of the head.
    pub(crate) fn payer(&self, queue: &Queue) -> Option<ClientId> {
        self.head(queue).map(|(_, waiter)| waiter.client)
    }

    /// Returns the requests of an owner.
    pub(crate) fn of_owner(&self, owner: &Owner) -> &[WaiterId] {
        self.by_owner.get(owner).map_or(&[], SmallVec::as_slice)
    }

    /// Returns the only waiting request of an owner; `None` if it has none or several.
    pub(crate) fn only_one_of(&self, owner: &Owner) -> Option<WaiterId> {
        match self.of_owner(owner) {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Returns a request that waits to be bound to this named session.
    pub(crate) fn of_session(&self, named: NamedId) -> Option<WaiterId> {
        let lowest = WaiterId::from(KeyData::from_ffi(0));
        self.by_session.range((named, lowest)..).next().filter(|(its, _)| *its == named).map(|(_, id)| *id)
    }

    /// Returns the waiting request that this one repeats: of this owner and id, for exactly these locks.
    pub(crate) fn repeated(&self, request: &Request, records: &[RecordId]) -> Option<WaiterId> {
        request.id.as_ref()?;
        let is_same = |waiter: &Waiter<T>| {
            waiter.request.id == request.id
                && waiter.records.len() == records.len()
                && records.iter().all(|record| waiter.records.contains(record))
        };
        let mut ids = self.of_owner(&request.owner).iter().copied();
        ids.find(|id| self.waiters.get(*id).is_some_and(is_same))
    }

    /// Adds a request. It has no place in a queue before [`Waiters::join`].
    pub(crate) fn add(
        &mut self,
        request: &Request,
        Sender { client, user, since }: Sender,
        rank: Rank,
        records: SmallVec<[RecordId; 1]>,
        ticket: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let place = Place { rank, arrival: self.arrivals };
        self.arrivals += 1;
        let id = self.waiters.insert_with_key(|id| Waiter {
            ticket: ticket(id),
            request: request.clone(),
            client,
            user,
            since_us: since.us(),
            place,
            records,
            in_the_way: 0,
            search: 0,
        });
        self.by_owner.entry(request.owner.clone()).or_default().push(id);
        if let BindTo::Named(Ok(named)) = request.session {
            self.by_session.insert((named, id));
        }
        id
    }

    /// Gives a request its place in the queue of one of its locks.
    pub(crate) fn join(&mut self, id: WaiterId, queue: &mut Queue) {
        let Some(waiter) = self.waiters.get(id) else { return debug_assert!(false, "a waiter that is gone joins") };
        self.queues += usize::from(queue.is_empty());
        self.places += 1;
        queue.join(waiter.place, id, waiter.mode(), waiter.is_multiple());
        let user = waiter.user.clone();
        self.count_places_of(user.as_ref(), 1);
    }

    /// Takes a request out of the tables. It keeps its places in queues until [`Waiters::leave`] frees each.
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(id)?;
        if let BindTo::Named(Ok(named)) = waiter.request.session {
            self.by_session.remove(&(named, id));
        }
        if let Some(ids) = self.by_owner.get_mut(&waiter.request.owner) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_owner.remove(&waiter.request.owner);
            }
        }
        Some(waiter)
    }

    /// Frees the place that a request had in a queue.
    pub(crate) fn leave(&mut self, waiter: &Waiter<T>, queue: &mut Queue) {
        queue.leave(waiter.place);
        self.places -= 1;
        self.count_places_of(waiter.user.as_ref(), -1);
        self.queues -= usize::from(queue.is_empty());
    }

    /// Gives the place of a request to the same request, sent again. Returns the ticket of the earlier one.
    pub(crate) fn take_over(
        &mut self,
        id: WaiterId,
        request: &Request,
        Sender { client, user, .. }: Sender,
        ticket: impl FnOnce(WaiterId) -> T,
    ) -> Option<T> {
        let waiter = self.waiters.get_mut(id)?;
        debug_assert_eq!(waiter.mode(), request.want.mode(), "an id is of one command");
        if let BindTo::Named(Ok(named)) = waiter.request.session {
            self.by_session.remove(&(named, id));
        }
        if let BindTo::Named(Ok(named)) = request.session {
            self.by_session.insert((named, id));
        }
        (waiter.client, waiter.request) = (client, request.clone());
        let first = std::mem::replace(&mut waiter.ticket, ticket(id));
        let before = std::mem::replace(&mut waiter.user, user.clone());
        let places = isize::try_from(waiter.records.len()).unwrap_or(0);
        self.count_places_of(before.as_ref(), -places);
        self.count_places_of(user.as_ref(), places);
        Some(first)
    }

    /// Remembers which of the locks of a request is in the way: the next evaluation begins with this lock.
    pub(crate) fn set_in_the_way(&mut self, id: WaiterId, index: usize) {
        if let Some(waiter) = self.waiters.get_mut(id) {
            waiter.in_the_way = index;
        }
    }

    /// Begins a deadlock search, which marks every request that it meets.
    pub(crate) fn begin_search(&mut self) {
        self.searches += 1;
    }

    /// Marks a request for the search that runs. Returns whether it was not marked before.
    pub(crate) fn mark_met(&mut self, id: WaiterId) -> bool {
        let searches = self.searches;
        self.waiters.get_mut(id).is_some_and(|waiter| std::mem::replace(&mut waiter.search, searches) != searches)
    }

    /// Returns whether the counted places of users agree with the requests that wait.
    #[cfg(feature = "check")]
    pub(crate) fn knows_places(&self) -> bool {
        let of_user = |user: &Rc<[u8]>| -> usize {
            let of_user = self.waiters.values().filter(|waiter| waiter.user.as_ref() == Some(user));
            of_user.map(|waiter| waiter.records.len()).sum()
        };
        let users = self.waiters.values().filter_map(|waiter| waiter.user.clone()).collect::<BTreeSet<_>>();
        users.len() == self.places_of.len() && users.iter().all(|user| self.places_of(user) == of_user(user))
    }

    /// Returns how many requests the table by owner names.
    #[cfg(feature = "check")]
    pub(crate) fn count_by_owner(&self) -> usize {
        self.by_owner.values().map(|ids| ids.len()).sum()
    }

    /// Returns whether the table by session names exactly the requests that wait to be bound to a named session.
    #[cfg(feature = "check")]
    pub(crate) fn knows_sessions(&self) -> bool {
        let named = |waiter: &Waiter<T>| match waiter.request.session {
            BindTo::Named(Ok(named)) => Some(named),
            BindTo::Nothing | BindTo::Connection | BindTo::Named(Err(_)) => None,
        };
        let all = self.waiters.iter().filter_map(|(id, waiter)| Some((named(waiter)?, id)));
        all.collect::<BTreeSet<_>>() == self.by_session
    }
}
