//! What a command answers, and how that is written.

use std::rc::Rc;

use dlock_core::{Hold, LockMode, Mode, Owner, Summary, Token, UnixMs, Waiting};

use crate::ffi::context::Context;
use crate::waiter::Waiter;

/// The answer of a command.
pub enum Reply {
    /// Not granted, not held, not there.
    Nil,
    /// A number.
    Integer(u64),
    /// A grant: the token, and the owner if the server made it up.
    Granted(Token, Option<Owner>),
    /// What `DLOCK.INFO` shows.
    Info(Box<Info>),
    /// The client waits, and is answered later.
    Later,
    /// Nobody reads it: the command came from a replication link or a file.
    Done,
}

/// What `DLOCK.INFO` shows of a lock.
pub struct Info {
    /// Of all live holds.
    pub summary: Summary,
    /// Milliseconds to the last deadline.
    pub ttl: u64,
    /// The holds asked for.
    pub holds: Option<Vec<ShownHold>>,
    /// How many wait.
    pub waiters: u64,
    /// Who waits, if asked for.
    pub queue: Option<Vec<ShownWaiter>>,
}

/// A hold as `DLOCK.INFO` shows it.
pub struct ShownHold {
    hold: Hold,
    ttl: u64,
    session: Option<u64>,
}

/// A waiter as `DLOCK.INFO` shows it.
pub struct ShownWaiter {
    owner: Owner,
    mode: Mode,
    waiting: u64,
    client: u64,
}

impl ShownWaiter {
    /// The waiter at `now`.
    pub fn new(waiting: &Waiting<Rc<Waiter>>, now: UnixMs) -> ShownWaiter {
        let Waiting { owner, mode, since, ticket, .. } = waiting;
        ShownWaiter { owner: owner.clone(), mode: *mode, waiting: now.since(*since), client: ticket.client }
    }
}

impl ShownHold {
    /// The hold at `now`, in a key that ends at `key_end`, and the client it is bound to.
    pub fn new(hold: &Hold, now: UnixMs, key_end: UnixMs, session: Option<u64>) -> ShownHold {
        ShownHold { hold: hold.clone(), ttl: hold.deadline.min(key_end).since(now), session }
    }
}

impl Reply {
    /// Writes the answer to the client.
    pub fn send(self, context: &Context) {
        match self {
            Reply::Nil => context.reply_nil(),
            Reply::Integer(number) => context.reply_integer(number),
            Reply::Granted(token, None) => context.reply_integer(token.get()),
            Reply::Granted(token, Some(owner)) => {
                context.reply_array(2);
                context.reply_bytes(&owner.text());
                context.reply_integer(token.get());
            }
            Reply::Info(info) => info.send(context),
            Reply::Later => {}
            Reply::Done => context.reply_integer(1),
        }
    }
}

impl Info {
    fn send(&self, context: &Context) {
        context.reply_map(6 + usize::from(self.holds.is_some()) + usize::from(self.queue.is_some()));
        let mode = match self.summary.mode {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
            LockMode::Both => "both",
        };
        text_field(context, "mode", mode.as_bytes());
        number_field(context, "holders", self.summary.holders);
        number_field(context, "count", self.summary.entries);
        number_field(context, "token", self.summary.token.get());
        number_field(context, "ttl", self.ttl);
        number_field(context, "waiters", self.waiters);
        if let Some(holds) = &self.holds {
            context.reply_bytes(b"holds");
            context.reply_array(holds.len());
            holds.iter().for_each(|hold| hold.send(context));
        }
        if let Some(queue) = &self.queue {
            context.reply_bytes(b"queue");
            context.reply_array(queue.len());
            queue.iter().for_each(|waiter| waiter.send(context));
        }
    }
}

impl ShownWaiter {
    fn send(&self, context: &Context) {
        context.reply_map(4);
        text_field(context, "owner", &self.owner.text());
        text_field(context, "mode", mode_name(self.mode));
        number_field(context, "waiting", self.waiting);
        number_field(context, "client", self.client);
    }
}

impl ShownHold {
    fn send(&self, context: &Context) {
        context.reply_map(6);
        text_field(context, "owner", &self.hold.owner.text());
        text_field(context, "mode", mode_name(self.hold.mode));
        number_field(context, "count", u64::from(self.hold.count));
        number_field(context, "token", self.hold.token.get());
        number_field(context, "ttl", self.ttl);
        match self.session {
            Some(client) => number_field(context, "session", client),
            None => {
                context.reply_bytes(b"session");
                context.reply_nil();
            }
        }
    }
}

fn mode_name(mode: Mode) -> &'static [u8] {
    match mode {
        Mode::Exclusive => b"exclusive",
        Mode::Shared => b"shared",
    }
}

fn text_field(context: &Context, name: &str, value: &[u8]) {
    context.reply_bytes(name.as_bytes());
    context.reply_bytes(value);
}

fn number_field(context: &Context, name: &str, value: u64) {
    context.reply_bytes(name.as_bytes());
    context.reply_integer(value);
}
