//! The engine of this server, and how commands, hooks and the timer reach it.
//!
//! The engine is borrowed while it works. Meanwhile the server may call a hook (a key expires when it is opened, a
//! client is freed): such calls go into an inbox, which is emptied before the engine works again. Nothing is sent while
//! the engine is borrowed, because the server may call a hook while the module sends.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use dlock_core::engine::{Engine, Event, Output};
use dlock_core::{Name, Now, doubt};

use crate::clients;
use crate::config::{log_settings, settings};
use crate::ffi::connected::{forget_lost_connections, is_connected};
use crate::ffi::context::{machine_time, now, uptime};
use crate::ffi::hooks::{is_timer_set_by, set_timer};
use crate::ffi::rights::KnownUser;
use crate::ffi::{UnderLock, guarded};
use crate::waiter::Waiter;

/// The engine of this server.
pub type ServerEngine = Engine<Rc<Waiter>>;

/// The engine's outputs, which the module has to send.
pub enum Outputs {
    /// An event on the key with this index of the running command, and nothing else. Nearly all commands lead to this.
    Own(usize, Event),
    /// A list, to be given back with [`recycle`].
    List(OutputList),
}

/// The engine's outputs in order.
pub type OutputList = Vec<Output<Rc<Waiter>>>;

struct State {
    engine: RefCell<Option<ServerEngine>>,
    inbox: RefCell<Vec<Note>>,
    has_notes: Cell<bool>,
    /// An empty list whose memory is used again.
    spare: Cell<OutputList>,
    known_user: KnownUser,
}

static STATE: UnderLock<State> = UnderLock::new(State {
    engine: RefCell::new(None),
    inbox: RefCell::new(Vec::new()),
    has_notes: Cell::new(false),
    spare: Cell::new(Vec::new()),
    known_user: KnownUser::none(),
});

/// Returns the user that the ACL has known last.
pub fn known_user() -> &'static KnownUser {
    let state: &'static State = &STATE;
    &state.known_user
}

/// Counts or logs a past event: now if the engine does not work, else before it works again.
pub fn count_or_log(what: impl FnOnce(&mut ServerEngine) + 'static) {
    match STATE.engine.try_borrow_mut() {
        Ok(mut engine) => what(engine.get_or_insert_with(new_engine)),
        Err(_) => keep_note(|engine, _| what(engine)),
    }
}

/// Gives the engine the operator's settings, which have changed.
pub fn set_settings(engine: &mut ServerEngine) {
    *engine.settings_mut() = settings();
    engine.log_mut().configure(log_settings());
}

#[cold]
fn new_engine() -> ServerEngine {
    let mut engine = Engine::new(rand::random(), settings());
    engine.log_mut().configure(log_settings());
    engine.log_mut().identify_by(clients::identify);
    engine.ask_rights_by(|waiter: &Rc<Waiter>| waiter.may_be_granted());
    // The server may ask for the answer before it is sent: another module may end the wait (`CLIENT UNBLOCK`).
    engine.tell_answers_by(|waiter: &Rc<Waiter>, answer| waiter.decide(answer.clone()));
    engine
}

/// Tells the engine what happened while it worked.
type Note = Box<dyn FnOnce(&mut ServerEngine, Now)>;

/// The engine is at work: a command came from a callback of another module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Borrows the engine for a piece of work. [`crate::outputs::begin`] has to follow, also after an error.
///
/// # Errors
/// [`Busy`].
#[inline(always)]
pub fn engine() -> Result<RefMut<'static, ServerEngine>, Busy> {
    let state: &'static State = &STATE;
    let engine = state.engine.try_borrow_mut().map_err(|_| Busy)?;
    let mut engine = RefMut::map(engine, |engine| engine.get_or_insert_with(new_engine));
    if state.has_notes.get() || doubt::is_raised() {
        catch_up(state, &mut engine);
    }
    Ok(engine)
}

/// Gives the engine back after a piece of work: sets the timer for what is due next, and returns what it has to send.
#[inline(always)]
pub fn outputs(mut engine: RefMut<'static, ServerEngine>) -> Outputs {
    arm(&engine);
    match engine.take_own_event() {
        Some((index, event)) => Outputs::Own(index, event),
        None => Outputs::List(engine.swap_outputs(STATE.spare.take())),
    }
}

/// Lets `body` work with the engine where that sends nothing: it reads, or applies an effect. Earlier notes may have
/// led to something to send: that is left to the timer, or to the next command.
///
/// # Errors
/// [`Busy`]; `body` did not run.
pub fn use_engine<R>(body: impl FnOnce(&mut ServerEngine) -> R) -> Result<R, Busy> {
    let mut engine = engine()?;
    let result = body(&mut engine);
    match outputs(engine) {
        Outputs::Own(..) => debug_assert!(false, "only a command has keys of its own"),
        Outputs::List(list) => keep(list),
    }
    Ok(result)
}

/// Gives an empty list back.
#[inline]
pub fn recycle(outputs: OutputList) {
    if outputs.is_empty() && outputs.capacity() <= 64 {
        STATE.spare.set(outputs);
    }
}

/// Leaves unsent outputs to the timer, or to the next command.
fn keep(outputs: OutputList) {
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

/// Tells the engine of an event: now if the engine does not work, else before it works again. Events arrive in their
/// order. Hooks call this.
///
/// The engine gets the time that commands have: an event in a transaction or script must not lie in the future of the
/// commands that follow there.
pub fn tell(note: impl FnOnce(&mut ServerEngine, Now) + 'static) {
    match STATE.engine.try_borrow_mut() {
        Ok(mut engine) => {
            if let Some(engine) = engine.as_mut() {
                if STATE.has_notes.get() || doubt::is_raised() {
                    catch_up(&STATE, engine);
                }
                note(engine, now());
                arm(engine);
            }
        }
        Err(_) => {
            keep_note(note);
            wake_now();
        }
    }
}

/// Returns whether the removal of this key concerns the engine.
pub fn concerns(name: Name<'_>) -> bool {
    match STATE.engine.try_borrow() {
        Ok(engine) => engine.as_ref().is_some_and(|engine| engine.remembers(name)),
        Err(_) => true,
    }
}

fn keep_note(note: impl FnOnce(&mut ServerEngine, Now) + 'static) {
    STATE.inbox.borrow_mut().push(Box::new(note));
    STATE.has_notes.set(true);
}

/// Tells the engine the events that came while it worked. If an event was lost, by a panic or a broken invariant, looks
/// at every client and every lock again.
#[inline(never)]
fn catch_up(state: &State, engine: &mut ServerEngine) {
    state.has_notes.set(false);
    let now = now();
    for note in state.inbox.take() {
        guarded("note", (), || note(engine, now));
    }
    if doubt::take(uptime()) {
        set_settings(engine);
        engine.look_at_all_again();
        forget_lost_connections();
        // A command that came without a client has the client 0.
        for client in engine.clients().into_iter().filter(|client| client.0 != 0 && !is_connected(client.0)) {
            engine.lose_client(client, now);
        }
    } else if doubt::is_raised() {
        let at = machine_time().ms().get() + doubt::GAP_MS;
        if !is_timer_set_by(at) {
            set_timer(at, doubt::GAP_MS.cast_signed());
        }
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

/// Makes the timer run in this turn of the event loop, or in the next.
pub fn wake_now() {
    if !is_timer_set_by(0) {
        set_timer(0, 0);
    }
}
