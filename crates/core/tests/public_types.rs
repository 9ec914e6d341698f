//! Every public type can be sent to other threads, shared with them, and printed. An [`Engine`] is an exception: it
//! stays in the thread of its server, because its parts share names by `Rc`.

#![allow(missing_docs, reason = "these are tests")]

use std::collections::BTreeSet;
use std::fmt::Debug;

use dlock_core::engine::Fault;
use dlock_core::{
    Acquired, Applied, BindTo, Binding, Bond, Change, ClientId, Command, DecodeError, Effect, Engine, Entries, Entry,
    Expiry, Extras, Hold, Lease, LeaseChoice, Lock, LockMode, Memory, Mode, Name, NamedId, NoSession, NotRestored, Now,
    Owner, OwnerText, Reach, Refusal, Release, Released, Renew, RenewToken, Renewed, Request, RequestId, SessionId,
    SessionKey, Summary, Terms, Token, TokenClock, Trash, UnixMs, Uptime, Want,
};

fn is_printed<T: Debug>() {}

fn is_shared_and_printed<T: Send + Sync + Debug>() {}

/// Checks these types, and returns their names.
macro_rules! checked {
    ($($type:ty),+ $(,)?) => {{
        $( is_shared_and_printed::<$type>(); )+
        BTreeSet::from([$( stringify!($type).split('<').next().unwrap_or_default() ),+])
    }};
}

#[test]
fn every_public_type_is_shared_by_threads_and_printed() {
    let checked = checked![
        Acquired,
        Applied,
        BindTo<SessionId>,
        Bond,
        Binding,
        Change,
        ClientId,
        Command,
        DecodeError,
        Effect,
        Entries,
        Entry,
        Expiry,
        Extras,
        Hold,
        Lease,
        LeaseChoice,
        Lock,
        LockMode,
        Memory,
        Mode,
        Name<'static>,
        NamedId,
        NoSession,
        NotRestored,
        Now,
        Owner,
        OwnerText<'static>,
        Reach,
        Refusal,
        Release,
        Released,
        Renew,
        RenewToken,
        Renewed,
        Request,
        RequestId,
        SessionId,
        SessionKey,
        Summary,
        Terms,
        Token,
        TokenClock,
        Trash,
        UnixMs,
        Uptime,
        Want,
    ];
    is_printed::<Engine<u64>>();
    // A type that is exported by the crate must be in the list. `Keyspace` is a trait.
    let exported = include_str!("../src/lib.rs").split(';').filter_map(|item| item.trim().strip_prefix("pub use "));
    let names = exported.flat_map(|path| path.split(|c: char| !c.is_alphanumeric()));
    let types =
        names.filter(|name| name.starts_with(|c: char| c.is_uppercase()) && !["Engine", "Keyspace"].contains(name));
    assert_eq!(checked, types.collect());
}

#[test]
fn error_types_implement_the_error_trait() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<DecodeError>();
    is_error::<Fault>();
}
