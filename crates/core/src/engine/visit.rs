//! A visit: everything that is due on one lock, in one order.

use super::bound::renewal_time;
use super::keyspace::{GRACE_MS, Keyspace, OpenKey, OpenLock, Permission, Replication, WrongType};
use super::queue::{Waiter, WaiterId};
use super::record::{Attention, RecordId};
use super::{Answer, Engine, Event, Fault, LogEvent, Output};
use crate::holds::Sum;
use crate::lock::{Acquire, Acquired, Entry, Refusal, Terms};
use crate::{Applied, Change, ClientId, Effect, Expiry, Hold, LeaseChoice, Lock, Mode, Name, Now, Owner, UnixMs};

/// What the server is, when a timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A primary that may write.
    Primary,
    /// A primary that holds its data still: `CLIENT PAUSE`, `FAILOVER`, slot hand-over.
    HeldStill,
    /// A replica.
    Replica,
}

/// When to try again what the server does not allow for now, in ms.
const RETRY_MS: u64 = 20;
/// How long one tick may take before others have their turn, in µs.
const BUDGET_US: u64 = 2000;
/// How much a tick does at least if it is not large, so that a server with too little time does not make it crawl.
const STEPS: u32 = 16;
/// How often a command begins anew because a request for several locks has become the head. Then it queues behind it.
const MAX_RESTARTS: u32 = 16;
/// How many holds of ended sessions a visit releases, how many leases it extends, and how many waiters it answers.
const PIECE: usize = 64;
/// How many waiters a tick answers before the caller sends the answers: to send one costs more than to decide on it.
const ANSWERS_AT_ONCE: usize = 2 * PIECE;
/// How many holds of a large lock are freed between two looks at the clock.
const FREED_AT_ONCE: usize = 512;

impl<T> Engine<T> {
    /// Does what is due, a turn at a time. A timer calls it at [`Engine::wake_at`].
    pub fn tick<S: Keyspace>(&mut self, space: &mut S, role: Role) {
        let start = space.now();
        self.not_before = UnixMs::ZERO;
        match role {
            Role::Primary => {}
            Role::HeldStill => {
                self.not_before = after(start, RETRY_MS);
                return;
            }
            Role::Replica => {
                self.ttls.clear();
                self.leaving.clear();
                for id in std::mem::take(&mut self.unsettled) {
                    self.stir(id);
                }
                while let Some(id) = self.next_due(UnixMs::MAX) {
                    self.stand_down(id);
                }
            }
        }
        let mut now = start;
        let waiting = self.waiters.len();
        for steps in 1.. {
            self.is_large = self.has_large_rests();
            let Some(()) = self.step(space, now) else { return };
            now = space.now();
            let is_over = now.us().saturating_sub(start.us()) > BUDGET_US && (self.is_large || steps >= STEPS);
            if is_over || waiting.saturating_sub(self.waiters.len()) >= ANSWERS_AT_ONCE {
                self.not_before = after(now, 1);
                return;
            }
        }
    }

    /// A replica sees to no lock.
    fn stand_down(&mut self, id: RecordId) {
        self.refresh(id);
        self.set_attention(id, Attention::None);
        if let Some(record) = self.records.get_mut(id) {
            (record.has_grace, record.was_deserted, record.queue_due) = (false, false, None);
        }
        self.drop_if_idle(id);
    }

    fn has_large_rests(&self) -> bool {
        !self.old_bound.is_empty() || !self.memory.trash.is_empty() || !self.unsettled.is_empty()
    }

    /// Has some of the records visited whose databases were emptied or changed places.
    fn settle(&mut self) {
        for _ in 0..PIECE {
            let Some(id) = self.unsettled.pop() else { return };
            self.refresh(id);
        }
    }

    /// Does one piece of what is due; `None` if nothing is.
    fn step<S: Keyspace>(&mut self, space: &mut S, now: Now) -> Option<()> {
        if !self.leaving.is_empty() {
            self.end_leaving();
        } else if !self.unsettled.is_empty() {
            self.settle();
        } else if let Some((db, key)) = self.ttls.pop() {
            self.correct_ttl(space, Name { db, key: &key }, now);
        } else if let Some(id) = self.next_due(now.ms()) {
            self.visit(space, id, space.now());
        } else if !self.memory.trash.is_empty() {
            self.memory.trash.free_some(FREED_AT_ONCE);
        } else if !self.old_bound.is_empty() {
            self.free_bound(FREED_AT_ONCE);
        } else {
            return None;
        }
        Some(())
    }

    /// Gives a lock that was restored without a TTL its last deadline as TTL, and takes the grace from one that was
    /// swapped away from its waiters.
    fn correct_ttl<S: Keyspace>(&mut self, space: &mut S, name: Name<'_>, now: Now) {
        let id = self.look_up(name);
        let Ok(mut open) = self.open(space, id, name, None) else { return };
        if !open.has_expiry() && !open.lock().is_empty() {
            let sweep = Effect { clock: now.ms(), change: Change::Sweep };
            self.apply(id, &mut open, sweep, Replication::Effect);
        }
        let has_waiter = id.and_then(|id| self.records.get(id)).is_some_and(|record| !record.queue.is_empty());
        if open.has_grace() && !has_waiter {
            open.close_with_grace(0);
        } else {
            self.close(id, open);
        }
        if let Some(id) = id {
            self.stir(id);
        }
    }

    fn visit<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now) {
        self.refresh(id);
        let Some(record) = self.records.get(id) else { return };
        let (db, key) = (record.db, std::rc::Rc::clone(&record.key));
        let name = Name { db, key: &key };
        // To release is always right. To grant and to extend is up to the server, which is asked before the key opens.
        let is_renewal_due = record.bound.next_renewal().is_some_and(|(at, _)| at <= now.ms());
        let permission = if record.queue.is_empty() && !is_renewal_due {
            Permission::ReleaseOnly
        } else {
            self.ask(space, id, name)
        };
        if permission == Permission::Elsewhere {
            self.dismiss(id, &Fault::TryAgain);
        }
        let several = match self.open(space, Some(id), name, None) {
            Err(WrongType) => {
                self.forget_bound(id);
                self.dismiss(id, &Fault::WrongType);
                // Another type shows nothing in `INFO`.
                self.note_deserted(id, false);
                None
            }
            Ok(mut open) => {
                self.release_ended(id, &mut open, now);
                let mut several = None;
                match permission {
                    Permission::Full => {
                        self.extend(id, &mut open, now);
                        several = self.serve(id, &mut open, now);
                    }
                    Permission::ReleaseOnly | Permission::Elsewhere => self.retry_later(id, now),
                }
                self.note_deserted(id, open.lock().lapsed(now.ms()) == open.lock().stored());
                self.close(Some(id), open);
                several
            }
        };
        if let Some(waiter) = several {
            self.try_several(space, waiter, now);
        }
        self.schedule(id);
        self.drop_if_idle(id);
    }

    /// The last waiter of a free lock has left: `INFO` shows that.
    fn note_deserted(&mut self, id: RecordId, is_free: bool) {
        let Some(record) = self.records.get_mut(id) else { return };
        let was_deserted = std::mem::take(&mut record.was_deserted);
        if was_deserted && is_free && record.queue.is_empty() {
            self.outbox.push(Output::Modified(record.db, std::rc::Rc::clone(&record.key)));
        }
    }

    fn retry_later(&mut self, id: RecordId, now: Now) {
        let Some(record) = self.records.get_mut(id) else { return };
        if !record.queue.is_empty() {
            record.queue_due = Some(after(now, RETRY_MS));
        }
        // A renewal that is due is tried again then, too, not in a busy loop.
        if record.bound.next_renewal().is_some_and(|(at, _)| at <= now.ms()) {
            record.bound.put_off(after(now, RETRY_MS));
        }
    }

    pub(super) fn head_of(&self, id: Option<RecordId>) -> Option<WaiterId> {
        self.records.get(id?)?.queue.head()
    }

    /// Opens a lock for change. `own` is the index of its key among those of the running command.
    pub(super) fn open<'k, S: Keyspace>(
        &mut self,
        space: &'k mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        own: Option<usize>,
    ) -> Result<OpenLock<S::Key<'k>>, WrongType> {
        let key = space.open(name)?;
        if let Some(id) = id
            && key.was_removed()
        {
            self.forget_bound(id);
        }
        Ok(OpenLock::new(key, own))
    }

    /// Asks what the server lets a timer do to a lock.
    pub(super) fn ask<S: Keyspace>(&mut self, space: &mut S, id: RecordId, name: Name<'_>) -> Permission {
        let permission = space.permission(name);
        if space.has_removed() {
            self.forget_bound(id);
        }
        permission
    }

    /// Looks at a lock that is not opened.
    pub(super) fn peek<S: Keyspace, R>(
        &mut self,
        space: &mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        look: impl FnOnce(&Lock) -> R,
    ) -> Result<R, WrongType> {
        let seen = space.peek(name, look);
        self.note_removal(space, id);
        seen
    }

    /// After a look at a lock: if the server has removed the key, what was bound is void, and its queue may move.
    pub(super) fn note_removal<S: Keyspace>(&mut self, space: &S, id: Option<RecordId>) {
        if let Some(id) = id
            && space.has_removed()
        {
            self.forget_bound(id);
            self.stir(id);
        }
    }

    /// Runs a command on one lock. It does what is due there, then the command's own work, `body`, then what has become
    /// due. `body` may give the lock a record. `own` is the index of the lock's key among those of the command.
    #[inline]
    pub(super) fn on_lock<S: Keyspace, R>(
        &mut self,
        space: &mut S,
        name: Name<'_>,
        own: usize,
        now: Now,
        owner: &Owner,
        body: impl FnOnce(&mut Self, &mut Option<RecordId>, &mut OpenLock<S::Key<'_>>) -> R,
    ) -> Result<R, WrongType> {
        self.heed(now);
        let mut restarts = 0..MAX_RESTARTS;
        loop {
            let mut id = self.look_up(name);
            if let Some(found) = id {
                // A request for several locks that has become the head, and was not looked at since, comes first.
                self.serve_several(space, found, now);
                // A record that has nothing left to remember is gone.
                id = id.filter(|id| self.records.contains_key(*id));
            }
            let head = self.head_of(id);
            let mut open = self.open(space, id, name, Some(own))?;
            let several = id.and_then(|id| self.work(id, &mut open, now, owner));
            // One that becomes the head now may get in, and comes before the command, too.
            if several.is_some() && several != head && restarts.next().is_some() {
                self.close(id, open);
                continue;
            }
            let done = body(self, &mut id, &mut open);
            self.close(id, open);
            if let Some(id) = id {
                self.serve_several(space, id, now);
                self.drop_if_idle(id);
            }
            return Ok(done);
        }
    }

    /// What is due on an open lock when a command comes: it sees the lock after that. Returns the request for several
    /// locks that is the head then.
    fn work<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now, owner: &Owner) -> Option<WaiterId> {
        self.release_ended(id, open, now);
        self.release_ended_of(id, open, now, owner);
        self.serve(id, open, now)
    }

    /// Applies an effect, and keeps the bindings of the lock in step with it.
    pub(super) fn apply<K: OpenKey>(
        &mut self,
        id: Option<RecordId>,
        open: &mut OpenLock<K>,
        effect: Effect,
        replication: Replication,
    ) -> Applied {
        if open.lock().has_lapsed(effect.clock) {
            self.note_lapses(id, open, effect.clock);
        }
        if let Some(id) = id {
            self.follow(id, &effect);
        }
        let applied = open.apply(effect, replication, &mut self.memory);
        if applied.lapsed > 0 {
            self.stats.lapses += applied.lapsed;
            self.emit(id, open.own, Event::Lapse);
        }
        applied
    }

    fn follow(&mut self, id: RecordId, effect: &Effect) {
        let spread = self.random();
        let Some(record) = self.records.get_mut(id) else { return };
        if record.bound.is_empty() {
            return;
        }
        record.bound.sweep(effect.clock);
        match &effect.change {
            Change::Put { hold, .. } => {
                record.bound.follow(hold, renewal_time(hold, spread));
                if hold.mode == Mode::Exclusive {
                    self.evict_others(id, &hold.owner, effect.clock);
                }
            }
            Change::Remove { owner, mode } => {
                for gone in [Mode::Exclusive, Mode::Shared] {
                    if mode.is_none_or(|mode| mode == gone) {
                        self.unbind(id, owner, gone);
                    }
                }
            }
            Change::Sweep => {}
        }
    }

    /// An exclusive grant ends what others had bound: holds whose sessions have ended and that were not released yet.
    fn evict_others(&mut self, id: RecordId, owner: &Owner, now: UnixMs) {
        let Some(record) = self.records.get_mut(id) else { return };
        let Some((others, ended)) = record.bound.split_others(owner) else { return };
        if self.settings.session_grace.is_none() {
            self.note_departed(others.ended_tokens(), ended as u64, now.get() * 1000);
        }
        self.discard(id, others);
        self.stats.session_ends += ended as u64;
        if self.settings.session_grace.is_none() && ended > 0 {
            self.stats.releases += ended as u64;
            self.emit(Some(id), None, Event::Release);
        }
    }

    /// Closes a lock.
    pub(super) fn close<K: OpenKey>(&mut self, id: Option<RecordId>, open: OpenLock<K>) {
        let is_changed = open.is_changed();
        match id.and_then(|id| self.records.get_mut(id)) {
            None => open.close(0),
            Some(record) if is_changed => {
                record.has_grace = !record.queue.is_empty();
                open.close(if record.has_grace { GRACE_MS } else { 0 });
            }
            Some(record) if record.has_grace && record.queue.is_empty() => {
                record.has_grace = false;
                // Another end is somebody else's.
                if open.has_grace() { open.close_with_grace(0) } else { open.close(0) }
            }
            Some(_) => open.close(0),
        }
    }

    /// Releases holds whose sessions have ended: some of them, if there are many.
    fn release_ended<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) {
        for _ in 0..PIECE {
            let Some(record) = self.records.get_mut(id) else { return };
            let Some((_, binding, _)) = record.bound.next_ended() else { return };
            let (owner, mode) = (binding.owner.clone(), binding.mode);
            self.release_one(id, open, now, &owner, mode);
        }
        self.is_large = true;
        // The exclusive owner is in everybody's way.
        if let Some(owner) = open.lock().exclusive(UnixMs::ZERO).map(|hold| hold.owner.clone()) {
            self.release_ended_of(id, open, now, &owner);
        }
    }

    /// Releases holds whose sessions have ended, on a lock that is not open. Returns whether none is left.
    pub(super) fn release_all_ended<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: RecordId,
        name: Name<'_>,
        now: Now,
    ) -> bool {
        // The visit sees to a key of another type.
        let Ok(mut open) = self.open(space, Some(id), name, None) else { return false };
        self.release_ended(id, &mut open, now);
        self.close(Some(id), open);
        !self.records.get(id).is_some_and(|record| record.bound.has_ended())
    }

    /// Releases the holds of one owner whose session has ended.
    fn release_ended_of<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now, owner: &Owner) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            self.release_one(id, open, now, owner, mode);
        }
    }

    fn release_one<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now, owner: &Owner, mode: Mode) {
        let ended = self.records.get(id).and_then(|record| record.bound.ended_of(owner, mode));
        let Some((binding, end)) = ended.map(|(_, binding, end)| (binding.clone(), end)) else { return };
        self.unbind(id, owner, mode);
        let is_it = |hold: &&Hold| hold.token == binding.token;
        // It may have lapsed since its session ended; what had lapsed then is left alone.
        let Some(hold) = open.lock().live(owner, mode, end.at.min(now.ms())).filter(is_it) else { return };
        let deadline = end.deadline();
        let effect = if end.grace.is_some() && deadline > now.ms() {
            let hold = Hold { deadline, ..hold.clone() };
            Effect { clock: end.at.min(now.ms()), change: Change::Put { hold, expiry: Expiry::Keep } }
        } else if hold.is_live(now.ms()) {
            Effect { clock: now.ms(), change: Change::Remove { owner: owner.clone(), mode: Some(mode) } }
        } else {
            // It counts as lapsed.
            Effect { clock: now.ms(), change: Change::Sweep }
        };
        let is_released = matches!(effect.change, Change::Remove { .. }) && end.grace.is_none();
        self.apply(Some(id), open, effect, Replication::Effect);
        self.stats.session_ends += 1;
        if is_released {
            self.note_departed(std::iter::once(binding.token), 1, now.us());
            self.stats.releases += 1;
            self.emit(Some(id), open.own, Event::Release);
        }
    }

    /// Extends the leases that are due: some of them, if there are many.
    fn extend<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) {
        for _ in 0..PIECE {
            let Some(record) = self.records.get_mut(id) else { return };
            let Some((hold_id, binding)) = record.bound.due(now.ms()) else { return };
            if record.bound.ended_of(&binding.owner, binding.mode).is_some() {
                record.bound.skip_renewal(hold_id);
                continue;
            }
            let hold = open.lock().live(&binding.owner, binding.mode, now.ms());
            let renewed = hold.filter(|hold| hold.token == binding.token).and_then(|hold| {
                let (lease, deadline) = LeaseChoice::Own.resolve(now.ms(), hold.lease)?;
                Some(Hold { lease, deadline, ..hold.clone() })
            });
            match renewed {
                Some(hold) => {
                    // The operator's earlier expiry stands: a watchdog is not a command.
                    let change = Change::Put { hold, expiry: Expiry::Keep };
                    self.apply(Some(id), open, Effect { clock: now.ms(), change }, Replication::Effect);
                }
                // It lapsed, or is gone.
                None => {
                    let (owner, mode) = (binding.owner.clone(), binding.mode);
                    self.unbind(id, &owner, mode);
                }
            }
        }
        self.is_large = true;
    }

    /// Serves the queue of an open lock as far as it goes: O(1) for each request. A timer serves the rest of a long one.
    /// Returns the head, if that is a request for several locks: it is looked at when the key is closed.
    pub(super) fn serve<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) -> Option<WaiterId> {
        let mut answered = 0..PIECE;
        let several = loop {
            let head = self.records.get(id)?.queue.head();
            let Some((head, waiter)) = head.and_then(|head| Some((head, self.waiters.get(head)?))) else { break None };
            if waiter.is_multiple() {
                break Some(head);
            }
            // What its owner had by a session that has ended is no part of the decision.
            if self.records.get(id)?.bound.has_ended() {
                let owner = waiter.owner.clone();
                self.release_ended_of(id, open, now, &owner);
            }
            let Some(waiter) = self.waiters.get(head) else { break None };
            if answered.next().is_none() {
                self.is_large = true;
                self.stir(id);
                break None;
            }
            let departed = self.departed(id, open, now);
            let Waiter { owner, want, lease, request, .. } = waiter;
            let request = Acquire { owner, want: *want, lease: *lease, request: request.as_deref() };
            let (decision, binds) =
                (open.lock().acquire_without(now.ms(), &request, self.terms(now), departed), waiter.binds);
            let answer = match decision {
                // An owner that got in through another connection: its turn comes when that hold is gone.
                Acquired::Refused(Refusal::Held | Refusal::Owned | Refusal::OverLimit | Refusal::OnlyHolder) => {
                    break None;
                }
                Acquired::Refused(refusal) => self.refusal(refusal, head, now),
                // The lease was long enough when the client began to wait.
                Acquired::Granted(hold, _) | Acquired::Replayed(hold) if binds && !hold.lease.can_be_bound() => {
                    Answer::Fault(Fault::SessionLease)
                }
                Acquired::Replayed(hold) => {
                    self.stats.replays += 1;
                    if let Some(client) = self.client_to_bind(head) {
                        self.bind(id, &hold, client);
                    }
                    Answer::Granted(hold.token, None)
                }
                Acquired::Granted(hold, entry) => {
                    let (token, client) = (hold.token, self.client_to_bind(head));
                    self.note_granted(head, token, now);
                    self.grant(Some(id), open, now, hold, entry, client);
                    self.emit(Some(id), open.own, Event::Acquire);
                    Answer::Granted(token, None)
                }
            };
            self.answer(head, answer, Some(id));
        };
        self.watch(id, open, now);
        several
    }

    /// Sees to a lock whose queue was served: drops what has lapsed, and sets when the queue is due next.
    pub(super) fn watch<K: OpenKey>(&mut self, id: RecordId, open: &mut OpenLock<K>, now: Now) {
        let Some(record) = self.records.get(id) else { return };
        let mut due = None;
        if !record.queue.is_empty() {
            if open.lock().has_lapsed(now.ms()) {
                let sweep = Effect { clock: now.ms(), change: Change::Sweep };
                self.apply(Some(id), open, sweep, Replication::Effect);
            }
            let early = open.early_end().map(|end| UnixMs::new(end.get() + 1));
            due = open.lock().first_deadline().into_iter().chain(early).min();
        }
        if let Some(record) = self.records.get_mut(id) {
            record.queue_due = due;
        }
        self.schedule(id);
    }

    /// The live holds that count as released.
    pub(super) fn departed<K: OpenKey>(&self, id: RecordId, open: &OpenLock<K>, now: Now) -> Sum {
        let Some(record) = self.records.get(id).filter(|record| record.bound.has_ended()) else {
            return Sum::default();
        };
        let departed = record.bound.departed(now.ms());
        // More than there are cannot be: then nothing is taken for released.
        if departed.holds <= open.lock().stored() { departed } else { Sum::default() }
    }

    pub(super) fn terms(&self, now: Now) -> Terms {
        Terms { default: self.settings.default_lease, fresh: self.memory.tokens.next(now.us()) }
    }

    /// Gives an owner a hold, or more entries.
    #[inline]
    pub(super) fn grant<K: OpenKey>(
        &mut self,
        id: Option<RecordId>,
        open: &mut OpenLock<K>,
        now: Now,
        hold: Hold,
        entry: Entry,
        client: Option<ClientId>,
    ) {
        match entry {
            Entry::First => self.stats.grants += 1,
            Entry::Again => self.stats.reentries += 1,
        }
        if let (Some(id), Entry::First) = (id, entry) {
            self.unbind(id, &hold.owner, hold.mode);
        }
        let bound = client.map(|client| (hold.clone(), client));
        let put = Effect { clock: now.ms(), change: Change::Put { hold, expiry: Expiry::Anew } };
        self.apply(id, open, put, Replication::Effect);
        if let (Some(id), Some((hold, client))) = (id, bound) {
            self.bind(id, &hold, client);
        }
    }

    pub(super) fn client_to_bind(&self, id: WaiterId) -> Option<ClientId> {
        self.waiters.get(id).filter(|waiter| waiter.binds).map(|waiter| waiter.client)
    }

    pub(super) fn refusal(&mut self, refusal: Refusal, id: WaiterId, now: Now) -> Answer {
        match refusal {
            Refusal::LeasePassed => {
                self.stats.wait_timeouts += 1;
                self.note_waited(id, LogEvent::Timeout, None, now);
                Answer::Nil
            }
            Refusal::Held | Refusal::Owned | Refusal::OverLimit | Refusal::OnlyHolder => Answer::Nil,
            Refusal::TooManyEntries => Answer::Fault(Fault::TooManyEntries),
            Refusal::NoToken => Answer::Fault(Fault::NoToken),
        }
    }

    /// Takes a waiter out of its queues, and has it answered. `served` is the lock whose queue is being served.
    pub(super) fn answer(&mut self, id: WaiterId, answer: Answer, served: Option<RecordId>) {
        let Some(waiter) = self.take_waiter(id, served) else { return };
        let answer = match answer {
            Answer::Granted(token, None) if waiter.is_owner_drawn => Answer::Granted(token, Some(waiter.owner)),
            answer => answer,
        };
        self.outbox.push(Output::Answer(waiter.ticket, answer));
    }

    /// Takes a waiter out of all its queues. Where it was the head, the next may get in before the end of the turn.
    pub(super) fn take_waiter(&mut self, id: WaiterId, served: Option<RecordId>) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(id)?;
        for record_id in &waiter.records {
            let Some(record) = self.records.get_mut(*record_id) else { continue };
            let was_head = record.queue.head() == Some(id);
            record.queue.leave(waiter.place);
            self.places -= 1;
            if record.queue.is_empty() {
                self.queues -= 1;
                record.queue_due = None;
                record.was_deserted = served != Some(*record_id);
            }
            if was_head && served != Some(*record_id) {
                self.stir(*record_id);
            }
        }
        if let Some(waits) = self.waits.get_mut(&waiter.owner) {
            waits.retain(|other| *other != id);
            if waits.is_empty() {
                self.waits.remove(&waiter.owner);
            }
        }
        Some(waiter)
    }

    /// Sends everybody in a queue away with an error: some of them, if there are many.
    fn dismiss(&mut self, id: RecordId, fault: &Fault) {
        for _ in 0..PIECE {
            let Some(head) = self.head_of(Some(id)) else { return };
            self.answer(head, Answer::Fault(fault.clone()), None);
        }
        self.is_large = true;
        self.stir(id);
    }
}

/// When to try again what the server does not allow now.
pub(super) fn retry(now: Now) -> UnixMs {
    after(now, RETRY_MS)
}

pub(super) fn after(now: Now, ms: u64) -> UnixMs {
    UnixMs::new(now.ms().get() + ms)
}
