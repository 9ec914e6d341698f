//! The engine of this server, and how commands, hooks and the timer reach it.
//!
//! The engine is borrowed while it works. What the server calls meanwhile (a key expires when it is opened, a client is
//! freed) goes into an inbox, which is emptied before the engine works again. Nothing is sent while it is borrowed: to
//! send something may call back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dlock_core::engine::{Engine, Input, Lost, Output, WaiterId};
use dlock_core::{ClientId, Name, Now};

use crate::clients;
use crate::config::{log_settings, settings};
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
    /// An empty list whose memory is used again.
    spare: Cell<Outputs>,
}

static STATE: MainThread<State> = MainThread::new(State {
    engine: RefCell::new(None),
    inbox: RefCell::new(Vec::new()),
    has_notes: Cell::new(false),
    spare: Cell::new(Vec::new()),
});

/// Counts and logs what went with a key that others removed: now if the engine does not work, else before it works again.
pub fn lose(lost: Lost) {
    match STATE.engine.try_borrow_mut() {
        Ok(mut engine) => engine.get_or_insert_with(new_engine).lose(&lost),
        Err(_) => keep_note(Note::Lost(Box::new(lost))),
    }
}

/// Logs a flush that removes locks.
pub fn log_flush(db: Option<i32>) {
    if let Ok(mut engine) = STATE.engine.try_borrow_mut() {
        engine.get_or_insert_with(new_engine).log_flush(db, machine_time());
    }
}

/// Has the engine work by the settings as they are now.
pub fn apply_settings() {
    if let Ok(mut engine) = STATE.engine.try_borrow_mut()
        && let Some(engine) = engine.as_mut()
    {
        set_settings(engine);
    }
}

fn set_settings(engine: &mut ServerEngine) {
    if is_changed() {
        engine.settings = settings();
        engine.log.configure(log_settings());
    }
}

#[cold]
fn new_engine() -> ServerEngine {
    let mut engine = Engine::new(rand::random(), settings());
    engine.log.configure(log_settings());
    engine.log.identify_by(clients::identify);
    engine
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
    TimedOut(WaiterId, Now),
    Lost(Box<Lost>),
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
    let engine = engine.get_or_insert_with(new_engine);
    set_settings(engine);
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
            set_settings(engine);
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

/// Takes out a waiter whose time is over, and logs that.
pub fn time_out(id: WaiterId) {
    let now = machine_time();
    let told = STATE.engine.try_borrow_mut().map(|mut engine| {
        if let Some(engine) = engine.as_mut() {
            engine.time_out(id, now);
            arm(engine);
        }
    });
    if told.is_err() {
        leave(Note::TimedOut(id, now));
    }
}

fn leave(note: Note) {
    keep_note(note);
    wake_now();
}

fn keep_note(note: Note) {
    STATE.inbox.borrow_mut().push(note);
    STATE.has_notes.set(true);
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
            Note::TimedOut(id, at) => {
                engine.time_out(*id, *at);
                continue;
            }
            Note::Lost(lost) => {
                engine.lose(lost);
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
