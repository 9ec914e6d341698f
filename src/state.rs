//! The engine of this server, and how commands, hooks and the timer reach it.
//!
//! The engine is borrowed while it works. What the server calls meanwhile (a key expires when it is opened, a client is
//! freed) goes into an inbox, which is emptied before the engine works again. Nothing is sent while it is borrowed: to
//! send something may call back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dlock_core::engine::{Engine, Input, Output, WaiterId};
use dlock_core::{ClientId, Name};

use crate::config::settings;
use crate::ffi::MainThread;
use crate::ffi::config::is_changed;
use crate::ffi::context::machine_time;
use crate::ffi::hooks::{is_timer_set_by, set_timer};
use crate::waiter::Waiter;

/// The engine of this server.
pub type ServerEngine = Engine<Rc<Waiter>>;
/// What it has to send.
pub type Outputs = Vec<Output<Rc<Waiter>>>;

struct State {
    engine: RefCell<Option<ServerEngine>>,
    inbox: RefCell<Vec<Note>>,
    has_notes: Cell<bool>,
    /// Leases that ran out on keys which the server removed, and that the engine has not counted yet.
    lapses: Cell<u64>,
    /// An empty list whose memory is used again.
    spare: Cell<Outputs>,
}

static STATE: MainThread<State> = MainThread::new(State {
    engine: RefCell::new(None),
    inbox: RefCell::new(Vec::new()),
    has_notes: Cell::new(false),
    lapses: Cell::new(0),
    spare: Cell::new(Vec::new()),
});

/// Counts leases that had run out on a key which the server has removed.
pub fn count_lapses(lapsed: u64) {
    STATE.lapses.set(STATE.lapses.get() + lapsed);
}

/// Something that happened while the engine worked.
enum Note {
    Removed(i32, Box<[u8]>),
    Restored(i32, Box<[u8]>),
    ClientGone(ClientId),
    Flushed(Option<i32>),
    Swapped(i32, i32),
    Loaded,
    RoleChanged,
    WaiterGone(WaiterId),
}

/// The engine is at work: a command came from a callback of another module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Lets `body` work with the engine, then sets the timer for what is due next. Returns what it has to send, too; give the
/// list back with [`recycle`].
///
/// # Errors
/// [`Busy`]; `body` did not run.
#[inline]
pub fn with_engine<R>(body: impl FnOnce(&mut ServerEngine) -> R) -> Result<(R, Outputs), Busy> {
    let state: &State = &STATE;
    let mut engine = state.engine.try_borrow_mut().map_err(|_| Busy)?;
    let engine = engine.get_or_insert_with(|| Engine::new(rand::random(), settings()));
    if is_changed() {
        engine.settings = settings();
    }
    if state.lapses.get() > 0 {
        engine.stats.lapses += state.lapses.take();
    }
    if state.has_notes.get() {
        empty_inbox(state, engine);
    }
    let result = body(engine);
    arm(engine);
    Ok((result, engine.swap_outputs(state.spare.take())))
}

/// Lets `body` read the engine: it has nothing to send.
///
/// # Errors
/// [`Busy`]; `body` did not run.
pub fn read_engine<R>(body: impl FnOnce(&mut ServerEngine) -> R) -> Result<R, Busy> {
    let (result, outputs) = with_engine(body)?;
    keep(outputs);
    Ok(result)
}

/// Gives an empty list back.
#[inline]
pub fn recycle(outputs: Outputs) {
    if outputs.is_empty() && outputs.capacity() <= 64 {
        STATE.spare.set(outputs);
    }
}

/// Leaves what is to be sent to the timer, or to the next command.
fn keep(outputs: Outputs) {
    if outputs.is_empty() {
        return recycle(outputs);
    }
    if let Ok(mut engine) = STATE.engine.try_borrow_mut()
        && let Some(engine) = engine.as_mut()
    {
        engine.swap_outputs(outputs);
        wake_now();
    }
}

/// Tells the engine what happened. Called by hooks: now if the engine does not work, else as soon as it has finished.
pub fn input(input: Input<'_>) {
    let told = STATE.engine.try_borrow_mut().map(|mut engine| {
        if let Some(engine) = engine.as_mut() {
            if is_changed() {
                engine.settings = settings();
            }
            engine.input(input, machine_time());
            arm(engine);
        }
    });
    if told.is_err() {
        leave(note(input));
    }
}

/// Whether the removal of this key concerns the engine.
pub fn concerns(name: Name<'_>) -> bool {
    match STATE.engine.try_borrow() {
        Ok(engine) => engine.as_ref().is_some_and(|engine| engine.remembers(name)),
        Err(_) => true,
    }
}

/// Takes a waiter out of its queues: its client is gone, or its time is over.
pub fn abandon(id: WaiterId) {
    let told = STATE.engine.try_borrow_mut().map(|mut engine| {
        if let Some(engine) = engine.as_mut() {
            engine.abandon(id);
            arm(engine);
        }
    });
    if told.is_err() {
        leave(Note::WaiterGone(id));
    }
}

fn leave(note: Note) {
    STATE.inbox.borrow_mut().push(note);
    STATE.has_notes.set(true);
    wake_now();
}

fn note(input: Input<'_>) -> Note {
    match input {
        Input::Removed(Name { db, key }) => Note::Removed(db, key.into()),
        Input::Restored(Name { db, key }) => Note::Restored(db, key.into()),
        Input::ClientGone(client) => Note::ClientGone(client),
        Input::Flushed(db) => Note::Flushed(db),
        Input::Swapped(first, second) => Note::Swapped(first, second),
        Input::Loaded => Note::Loaded,
        Input::RoleChanged => Note::RoleChanged,
    }
}

#[cold]
fn empty_inbox(state: &State, engine: &mut ServerEngine) {
    state.has_notes.set(false);
    let now = machine_time();
    for note in state.inbox.take() {
        let input = match &note {
            Note::Removed(db, key) => Input::Removed(Name { db: *db, key }),
            Note::Restored(db, key) => Input::Restored(Name { db: *db, key }),
            Note::ClientGone(client) => Input::ClientGone(*client),
            Note::Flushed(db) => Input::Flushed(*db),
            Note::Swapped(first, second) => Input::Swapped(*first, *second),
            Note::Loaded => Input::Loaded,
            Note::RoleChanged => Input::RoleChanged,
            Note::WaiterGone(id) => {
                engine.abandon(*id);
                continue;
            }
        };
        engine.input(input, now);
    }
}

/// Sets the timer for what is due next, if it is not set for then or earlier.
#[inline]
fn arm(engine: &ServerEngine) {
    if let Some(at) = engine.wake_at()
        && !is_timer_set_by(at.get())
    {
        let delay = at.since(machine_time().ms());
        set_timer(at.get(), i64::try_from(delay).unwrap_or(i64::MAX));
    }
}

fn wake_now() {
    if !is_timer_set_by(0) {
        set_timer(0, 0);
    }
}
