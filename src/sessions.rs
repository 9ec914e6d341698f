//! The watchdog: holds that are bound to a client connection are kept alive while it lives. What happens when it ends is in
//! [`crate::ended`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dlock_core::{Hold, LeaseChoice, Mode, Owner, Renew, RenewToken, Renewed, Sessions, time_to_move};

use crate::alarm::{Alarm, RETRY_MS, Turn};
use crate::ended;
use crate::ffi::MainThread;
use crate::ffi::context::{CanWrite, Context, Now};
use crate::ffi::key::Name;
use crate::lines::LockName;
use crate::store::{OpenLock, Replication, close};

type Bound = Sessions<Rc<LockName>>;

static MOVING: MainThread<Alarm> = MainThread::new(Alarm::new(move_due));

fn with_sessions<T>(body: impl FnOnce(&mut Bound) -> T) -> T {
    static SESSIONS: MainThread<RefCell<Option<Bound>>> = MainThread::new(RefCell::new(None));
    let mut sessions = SESSIONS.borrow_mut();
    let sessions = sessions.get_or_insert_default();
    let result = body(sessions);
    BOUND.set(sessions.len());
    result
}

/// How many holds are bound: on most servers none are, and find that out here.
static BOUND: MainThread<Cell<usize>> = MainThread::new(Cell::new(0));

/// How many holds are bound.
pub fn count() -> usize {
    BOUND.get()
}

/// Binds a hold to a client; the latest binding wins.
pub fn bind(db: i32, key: &[u8], hold: &Hold, client: u64) {
    let move_at = time_to_move(hold, rand::random());
    with_sessions(|sessions| sessions.bind(Rc::new(LockName::new(db, key)), hold, client, move_at));
    arm();
}

/// Takes note of a new deadline, if the hold is bound.
pub fn moved(db: i32, key: &[u8], hold: &Hold) {
    if count() == 0 {
        return;
    }
    let move_at = time_to_move(hold, rand::random());
    with_sessions(|sessions| sessions.moved(Rc::new(LockName::new(db, key)), hold, move_at));
    arm();
}

/// Frees a hold from its client.
pub fn unbind(context: &Context, name: &Name, owner: &Owner, mode: Mode) {
    if count() > 0 {
        let lock = Rc::new(LockName::new(context.db(), name.bytes()));
        with_sessions(|sessions| sessions.unbind(&(lock, owner.clone(), mode)));
    }
}

/// Frees all holds of a lock whose key was removed or replaced. Called by hooks.
pub fn unbind_lock(db: i32, key: &[u8]) {
    if count() > 0 {
        with_sessions(|sessions| sessions.unbind_lock(&Rc::new(LockName::new(db, key))));
    }
}

/// Frees all holds, or those of one database. Called by hooks.
pub fn unbind_all(db: Option<i32>) {
    with_sessions(|sessions| sessions.unbind_where(|lock| db.is_none_or(|db| db == lock.db)));
}

/// The client a hold is bound to.
pub fn client_of(db: i32, key: &[u8], hold: &Hold) -> Option<u64> {
    if count() == 0 {
        return None;
    }
    with_sessions(|sessions| sessions.client_of(&(Rc::new(LockName::new(db, key)), hold.owner.clone(), hold.mode)))
}

/// A client is gone. A hook writes nothing: its holds are released in the same turn of the event loop.
pub fn on_client_gone(client: u64) {
    if count() == 0 {
        return;
    }
    ended::note(with_sessions(|sessions| sessions.end(client)));
}

/// Moves on the leases that are due, the one that would lapse first first, a turn at a time.
fn move_due(context: &Context) {
    if !MOVING.rings(context) {
        return;
    }
    if !context.flags().is_primary() {
        with_sessions(|sessions| *sessions = Bound::default());
        return;
    }
    let mut turn = Turn::begin();
    let mut now = Now::of_the_machine();
    let mut may_write = false;
    while let Some((lock, owner, mode)) = with_sessions(|sessions| {
        sessions.next_due(now.millis()).map(|binding| (Rc::clone(&binding.lock), binding.owner.clone(), binding.mode))
    }) {
        context.select_db(lock.db);
        let name = Name::new(&lock.key);
        if !may_write && context.can_write(&name) == CanWrite::NotNow {
            with_sessions(|sessions| sessions.put_off(&(lock, owner, mode)));
            MOVING.wake_in(RETRY_MS);
            return;
        }
        may_write = true;
        move_on(context, &name, &lock, &owner, mode, now);
        now = Now::of_the_machine();
        if turn.is_over() {
            MOVING.wake_in(1);
            return;
        }
    }
    arm();
}

fn move_on(context: &Context, name: &Name, lock: &Rc<LockName>, owner: &Owner, mode: Mode, now: Now) {
    let request = Renew { owner, mode: Some(mode), lease: LeaseChoice::Own, token: RenewToken::Any };
    let open = OpenLock::open(context, name);
    let renewed = open.as_ref().map_or(Renewed::NotHeld, |open| open.lock().renew(now.millis(), &request));
    match (open, renewed) {
        (Ok(mut open), Renewed::Moved(effect, _)) => {
            if let Some(hold) = effect.hold() {
                let move_at = time_to_move(hold, rand::random());
                with_sessions(|sessions| sessions.moved(Rc::clone(lock), hold, move_at));
            }
            open.apply(effect, Replication::Effect);
            close(&mut open);
        }
        // It lapsed, or is gone.
        _ => unbind(context, name, owner, mode),
    }
}

fn arm() {
    let now = Now::of_the_machine().millis();
    if let Some(at) = with_sessions(|sessions| sessions.next_time()) {
        MOVING.wake_in(u32::try_from(at.since(now)).unwrap_or(u32::MAX));
    }
}
