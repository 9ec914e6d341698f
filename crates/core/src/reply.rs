//! The replies to commands, which the module and `dlock serve` write alike.

use crate::engine::{
    BoundHold, Grant, Inspection, LogEntry, LogEvent, OpenSession, Peer, ShownHold, ShownSession, ShownWaiter,
    SlotAnswer,
};
use crate::{ClientId, LockMode, Mode, Owner, SessionId, Token};

use Value::{Nil, Number, Text};

/// Writes the parts of an answer, one after the other.
pub trait Writer {
    /// Writes an integer, or the largest one of the protocol if `integer` is larger.
    fn integer(&mut self, integer: u64);

    /// Writes a bulk string.
    fn bytes(&mut self, bytes: &[u8]);

    /// Writes nil: the null bulk of RESP2, null in RESP3.
    fn nil(&mut self);

    /// Begins an array of `len` elements.
    fn array(&mut self, len: usize);

    /// Begins a map of `pairs` pairs: a flat array in RESP2.
    fn map(&mut self, pairs: usize);
}

/// Replies to a grant: the owner if the server generated it, the token, and the slot if the request asks for one.
#[inline]
pub fn granted(to: &mut impl Writer, grant: Grant, owner: Option<&Owner>) {
    let parts = 1 + usize::from(owner.is_some()) + usize::from(grant.slot != SlotAnswer::NotAsked);
    if parts > 1 {
        to.array(parts);
    }
    if let Some(owner) = owner {
        to.bytes(&owner.text());
    }
    to.integer(grant.token.get());
    match grant.slot {
        SlotAnswer::NotAsked => {}
        SlotAnswer::None => to.nil(),
        SlotAnswer::Number(slot) => to.integer(u64::from(slot)),
    }
}

/// Replies to `DLOCK.INFO`. `identify` finds the address and the name of a waiter's client.
pub fn inspection(to: &mut impl Writer, shown: &Inspection, identify: impl Fn(ClientId) -> Option<Peer>) {
    let mode = match shown.summary.mode {
        LockMode::Free => "free",
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
        LockMode::Both => "both",
    };
    let summary = [
        ("mode", Text(mode.as_bytes())),
        ("holders", Number(shown.summary.holders)),
        ("count", Number(shown.summary.entries)),
        ("token", number(shown.summary.token.map(Token::get))),
        ("ttl", Number(shown.ttl)),
        ("waiters", Number(shown.waiters as u64)),
    ];
    to.map(summary.len() + usize::from(shown.holds.is_some()) + usize::from(shown.queue.is_some()));
    fields(to, &summary);
    if let Some(holds) = &shown.holds {
        to.bytes(b"holds");
        to.array(holds.len());
        holds.iter().for_each(|shown| hold(to, shown));
    }
    if let Some(queue) = &shown.queue {
        to.bytes(b"queue");
        to.array(queue.len());
        queue.iter().for_each(|shown| waiter(to, shown, identify(shown.client).as_ref()));
    }
}

fn hold(to: &mut impl Writer, shown: &ShownHold) {
    let session = match &shown.session {
        Some(ShownSession::Named(id)) => Text(id.as_bytes()),
        Some(ShownSession::Connection(client)) => Number(client.0),
        None => Nil,
    };
    map(
        to,
        &[
            ("owner", Text(&shown.hold.owner.text())),
            ("mode", Text(mode_name(shown.hold.mode))),
            ("count", Number(u64::from(shown.hold.count))),
            ("token", Number(shown.hold.token.get())),
            ("ttl", Number(shown.ttl)),
            ("session", session),
            ("held", Number(shown.held)),
            ("cap", number(shown.cap)),
            ("slot", number(shown.hold.slot().map(u64::from))),
        ],
    );
}

fn waiter(to: &mut impl Writer, shown: &ShownWaiter, peer: Option<&Peer>) {
    map(
        to,
        &[
            ("owner", Text(&shown.owner.text())),
            ("mode", Text(mode_name(shown.mode))),
            ("waiting", Number(shown.waiting)),
            ("client", Number(shown.client.0)),
            ("permits", Number(u64::from(shown.permits))),
            ("limit", number(shown.limit.map(u64::from))),
            ("keys", Number(shown.keys as u64)),
            ("addr", address(peer)),
            ("name", name(peer)),
        ],
    );
}

fn address(peer: Option<&Peer>) -> Value<'_> {
    text(peer.map(|peer| &*peer.addr))
}

fn name(peer: Option<&Peer>) -> Value<'_> {
    text(peer.and_then(|peer| peer.name.as_deref()))
}

/// Replies with an entry of `DLOCK.LOG GET`.
pub fn log_entry(to: &mut impl Writer, entry: &LogEntry) {
    let event = match entry.event {
        LogEvent::Wait => "wait",
        LogEvent::Timeout => "timeout",
        LogEvent::Hold => "hold",
        LogEvent::Lapse => "lapse",
        LogEvent::Cap => "cap",
        LogEvent::SessionEnd => "session-end",
        LogEvent::Break => "break",
        LogEvent::Delete => "delete",
        LogEvent::Flush => "flush",
        LogEvent::Deadlock => "deadlock",
    };
    let peer = entry.client.as_ref().map(|(_, peer)| peer);
    map(
        to,
        &[
            ("id", Number(entry.id)),
            ("time", Number(entry.time.get())),
            ("event", Text(event.as_bytes())),
            ("db", number(entry.db.and_then(|db| u64::try_from(db).ok()))),
            ("key", text(entry.key.as_deref())),
            ("owner", text(entry.owner.as_deref())),
            ("mode", text(entry.mode.map(mode_name))),
            ("token", number(entry.token.map(Token::get))),
            ("waited", number(entry.waited)),
            ("held", number(entry.held)),
            ("client", number(entry.client.as_ref().map(|(client, _)| client.0))),
            ("addr", address(peer)),
            ("name", name(peer)),
            ("session", text(entry.session.as_ref().map(SessionId::as_bytes))),
        ],
    );
}

/// Replies with a hold that is bound to a session, for `DLOCK.SESSION id LIST`.
pub fn bound_hold(to: &mut impl Writer, hold: BoundHold<'_>) {
    to.array(5);
    to.integer(u64::try_from(hold.db).unwrap_or(0));
    to.bytes(hold.key);
    to.bytes(hold.owner);
    to.bytes(mode_name(hold.mode));
    to.integer(hold.token.get());
}

/// Replies with an open session, for `DLOCK.SESSION LIST`.
pub fn open_session(to: &mut impl Writer, session: &OpenSession) {
    to.array(4);
    to.bytes(&session.user);
    to.bytes(session.id.as_bytes());
    to.integer(session.holds as u64);
    to.integer(session.left);
}

fn mode_name(mode: Mode) -> &'static [u8] {
    match mode {
        Mode::Exclusive => b"exclusive",
        Mode::Shared => b"shared",
    }
}

/// The value of a field.
enum Value<'a> {
    Text(&'a [u8]),
    Number(u64),
    Nil,
}

fn text(text: Option<&[u8]>) -> Value<'_> {
    text.map_or(Nil, Text)
}

fn number(number: Option<u64>) -> Value<'static> {
    number.map_or(Nil, Number)
}

/// Writes a map with these fields.
fn map(to: &mut impl Writer, of: &[(&str, Value<'_>)]) {
    to.map(of.len());
    fields(to, of);
}

fn fields(to: &mut impl Writer, fields: &[(&str, Value<'_>)]) {
    for (name, value) in fields {
        to.bytes(name.as_bytes());
        match value {
            Text(text) => to.bytes(text),
            Number(number) => to.integer(*number),
            Nil => to.nil(),
        }
    }
}
