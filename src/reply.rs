//! How answers are written.

use dlock_core::engine::{
    BoundHold, Grant, Inspection, LogEntry, LogEvent, OpenSession, Peer, ShownHold, ShownSession, ShownWaiter,
    SlotAnswer,
};
use dlock_core::{ClientId, LockMode, Mode, Owner, SessionId, Token};

use crate::ffi::context::Context;

/// Replies to a grant: the token, the owner before it if the server drew it, and the number behind it if it was asked for.
#[inline]
pub fn granted(context: &Context<'_>, grant: Grant, owner: Option<&Owner>) {
    let parts = 1 + usize::from(owner.is_some()) + usize::from(grant.slot != SlotAnswer::NotAsked);
    if parts > 1 {
        context.reply_array(parts);
    }
    if let Some(owner) = owner {
        context.reply_bytes(&owner.text());
    }
    context.reply_integer(grant.token.get());
    match grant.slot {
        SlotAnswer::NotAsked => {}
        SlotAnswer::None => context.reply_nil(),
        SlotAnswer::Number(slot) => context.reply_integer(u64::from(slot)),
    }
}

/// Replies with what `DLOCK.INFO` shows. `identify` finds the address and the name of a waiter's client.
pub fn inspection(context: &Context<'_>, shown: &Inspection, identify: impl Fn(ClientId) -> Option<Peer>) {
    context.reply_map(6 + usize::from(shown.holds.is_some()) + usize::from(shown.queue.is_some()));
    let mode = match shown.summary.mode {
        LockMode::Free => "free",
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
        LockMode::Both => "both",
    };
    text_field(context, "mode", mode.as_bytes());
    number_field(context, "holders", Some(shown.summary.holders));
    number_field(context, "count", Some(shown.summary.entries));
    number_field(context, "token", shown.summary.token.map(Token::get));
    number_field(context, "ttl", Some(shown.ttl));
    number_field(context, "waiters", Some(shown.waiters as u64));
    if let Some(holds) = &shown.holds {
        context.reply_bytes(b"holds");
        context.reply_array(holds.len());
        holds.iter().for_each(|shown| hold(context, shown));
    }
    if let Some(queue) = &shown.queue {
        context.reply_bytes(b"queue");
        context.reply_array(queue.len());
        queue.iter().for_each(|shown| waiter(context, shown, identify(shown.client).as_ref()));
    }
}

fn hold(context: &Context<'_>, shown: &ShownHold) {
    context.reply_map(9);
    text_field(context, "owner", &shown.hold.owner.text());
    text_field(context, "mode", mode_name(shown.hold.mode));
    number_field(context, "count", Some(u64::from(shown.hold.count)));
    number_field(context, "token", Some(shown.hold.token.get()));
    number_field(context, "ttl", Some(shown.ttl));
    match &shown.session {
        Some(ShownSession::Named(id)) => text_field(context, "session", id.as_bytes()),
        Some(ShownSession::Connection(client)) => number_field(context, "session", Some(client.0)),
        None => number_field(context, "session", None),
    }
    number_field(context, "held", Some(shown.held));
    number_field(context, "cap", shown.cap);
    number_field(context, "slot", shown.hold.slot().map(u64::from));
}

fn waiter(context: &Context<'_>, shown: &ShownWaiter, peer: Option<&Peer>) {
    context.reply_map(9);
    text_field(context, "owner", &shown.owner.text());
    text_field(context, "mode", mode_name(shown.mode));
    number_field(context, "waiting", Some(shown.waiting));
    number_field(context, "client", Some(shown.client.0));
    number_field(context, "permits", Some(u64::from(shown.permits)));
    number_field(context, "limit", shown.limit.map(u64::from));
    number_field(context, "keys", Some(shown.keys as u64));
    peer_fields(context, peer);
}

fn peer_fields(context: &Context<'_>, peer: Option<&Peer>) {
    may_be_text_field(context, "addr", peer.map(|peer| &*peer.addr));
    may_be_text_field(context, "name", peer.and_then(|peer| peer.name.as_deref()));
}

/// Replies with an entry of the log.
pub fn log_entry(context: &Context<'_>, entry: &LogEntry) {
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
    context.reply_map(14);
    number_field(context, "id", Some(entry.id));
    number_field(context, "time", Some(entry.time.get()));
    text_field(context, "event", event.as_bytes());
    number_field(context, "db", entry.db.and_then(|db| u64::try_from(db).ok()));
    may_be_text_field(context, "key", entry.key.as_deref());
    may_be_text_field(context, "owner", entry.owner.as_deref());
    may_be_text_field(context, "mode", entry.mode.map(mode_name));
    number_field(context, "token", entry.token.map(Token::get));
    number_field(context, "waited", entry.waited);
    number_field(context, "held", entry.held);
    number_field(context, "client", entry.client.as_ref().map(|(client, _)| client.0));
    peer_fields(context, peer);
    may_be_text_field(context, "session", entry.session.as_ref().map(SessionId::as_bytes));
}

/// Replies with a hold that is bound to a session.
pub fn bound_hold(context: &Context<'_>, hold: &BoundHold) {
    context.reply_array(5);
    context.reply_integer(u64::try_from(hold.db).unwrap_or(0));
    context.reply_bytes(&hold.key);
    context.reply_bytes(&hold.owner.text());
    context.reply_bytes(mode_name(hold.mode));
    context.reply_integer(hold.token.get());
}

/// Replies with an open session.
pub fn open_session(context: &Context<'_>, session: &OpenSession) {
    context.reply_array(4);
    context.reply_bytes(&session.user);
    context.reply_bytes(session.id.as_bytes());
    context.reply_integer(session.holds as u64);
    context.reply_integer(session.left);
}

fn mode_name(mode: Mode) -> &'static [u8] {
    match mode {
        Mode::Exclusive => b"exclusive",
        Mode::Shared => b"shared",
    }
}

fn text_field(context: &Context<'_>, name: &str, value: &[u8]) {
    context.reply_bytes(name.as_bytes());
    context.reply_bytes(value);
}

fn may_be_text_field(context: &Context<'_>, name: &str, value: Option<&[u8]>) {
    match value {
        Some(value) => text_field(context, name, value),
        None => number_field(context, name, None),
    }
}

fn number_field(context: &Context<'_>, name: &str, value: Option<u64>) {
    context.reply_bytes(name.as_bytes());
    match value {
        Some(value) => context.reply_integer(value),
        None => context.reply_nil(),
    }
}
