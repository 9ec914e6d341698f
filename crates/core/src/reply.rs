//! How answers are written: the same by every server that has an engine.

use crate::engine::{
    BoundHold, Grant, Inspection, LogEntry, LogEvent, OpenSession, Peer, ShownHold, ShownSession, ShownWaiter,
    SlotAnswer,
};
use crate::{ClientId, LockMode, Mode, Owner, SessionId, Token};

/// Writes the parts of an answer, one after the other.
pub trait Writer {
    /// Writes an integer. One that is too large for the protocol is its largest.
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

/// Replies to a grant: the token, the owner before it if the server drew it, and the number behind it if it was asked for.
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

/// Replies with what `DLOCK.INFO` shows. `identify` finds the address and the name of a waiter's client.
pub fn inspection(to: &mut impl Writer, shown: &Inspection, identify: impl Fn(ClientId) -> Option<Peer>) {
    to.map(6 + usize::from(shown.holds.is_some()) + usize::from(shown.queue.is_some()));
    let mode = match shown.summary.mode {
        LockMode::Free => "free",
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
        LockMode::Both => "both",
    };
    text_field(to, "mode", mode.as_bytes());
    number_field(to, "holders", Some(shown.summary.holders));
    number_field(to, "count", Some(shown.summary.entries));
    number_field(to, "token", shown.summary.token.map(Token::get));
    number_field(to, "ttl", Some(shown.ttl));
    number_field(to, "waiters", Some(shown.waiters as u64));
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
    to.map(9);
    text_field(to, "owner", &shown.hold.owner.text());
    text_field(to, "mode", mode_name(shown.hold.mode));
    number_field(to, "count", Some(u64::from(shown.hold.count)));
    number_field(to, "token", Some(shown.hold.token.get()));
    number_field(to, "ttl", Some(shown.ttl));
    match &shown.session {
        Some(ShownSession::Named(id)) => text_field(to, "session", id.as_bytes()),
        Some(ShownSession::Connection(client)) => number_field(to, "session", Some(client.0)),
        None => number_field(to, "session", None),
    }
    number_field(to, "held", Some(shown.held));
    number_field(to, "cap", shown.cap);
    number_field(to, "slot", shown.hold.slot().map(u64::from));
}

fn waiter(to: &mut impl Writer, shown: &ShownWaiter, peer: Option<&Peer>) {
    to.map(9);
    text_field(to, "owner", &shown.owner.text());
    text_field(to, "mode", mode_name(shown.mode));
    number_field(to, "waiting", Some(shown.waiting));
    number_field(to, "client", Some(shown.client.0));
    number_field(to, "permits", Some(u64::from(shown.permits)));
    number_field(to, "limit", shown.limit.map(u64::from));
    number_field(to, "keys", Some(shown.keys as u64));
    peer_fields(to, peer);
}

fn peer_fields(to: &mut impl Writer, peer: Option<&Peer>) {
    may_be_text_field(to, "addr", peer.map(|peer| &*peer.addr));
    may_be_text_field(to, "name", peer.and_then(|peer| peer.name.as_deref()));
}

/// Replies with an entry of the log.
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
    to.map(14);
    number_field(to, "id", Some(entry.id));
    number_field(to, "time", Some(entry.time.get()));
    text_field(to, "event", event.as_bytes());
    number_field(to, "db", entry.db.and_then(|db| u64::try_from(db).ok()));
    may_be_text_field(to, "key", entry.key.as_deref());
    may_be_text_field(to, "owner", entry.owner.as_deref());
    may_be_text_field(to, "mode", entry.mode.map(mode_name));
    number_field(to, "token", entry.token.map(Token::get));
    number_field(to, "waited", entry.waited);
    number_field(to, "held", entry.held);
    number_field(to, "client", entry.client.as_ref().map(|(client, _)| client.0));
    peer_fields(to, peer);
    may_be_text_field(to, "session", entry.session.as_ref().map(SessionId::as_bytes));
}

/// Replies with a hold that is bound to a session.
pub fn bound_hold(to: &mut impl Writer, hold: &BoundHold) {
    to.array(5);
    to.integer(u64::try_from(hold.db).unwrap_or(0));
    to.bytes(&hold.key);
    to.bytes(&hold.owner.text());
    to.bytes(mode_name(hold.mode));
    to.integer(hold.token.get());
}

/// Replies with an open session.
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

fn text_field(to: &mut impl Writer, name: &str, value: &[u8]) {
    to.bytes(name.as_bytes());
    to.bytes(value);
}

fn may_be_text_field(to: &mut impl Writer, name: &str, value: Option<&[u8]>) {
    match value {
        Some(value) => text_field(to, name, value),
        None => number_field(to, name, None),
    }
}

fn number_field(to: &mut impl Writer, name: &str, value: Option<u64>) {
    to.bytes(name.as_bytes());
    match value {
        Some(value) => to.integer(value),
        None => to.nil(),
    }
}
