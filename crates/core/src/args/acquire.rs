//! `ACQUIRE | RACQUIRE | RLOCK | WLOCK key owner …`, `SACQUIRE key owner limit [PERMITS k | SLOT] …` and
//! `MACQUIRE numkeys key [key …] owner …`, each with
//! `[EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION | SESSIONID id] [MAXHOLD ms] [REQUEST id]`; the first four
//! also take `[MINTOKEN token]`

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::words::{Words, binding, cap, check_lead, is, once, one_of, owner};
use super::{Excerpt, Limits, Malformed};
use crate::{BindTo, Command, Lease, LeaseChoice, Owner, RequestId, SessionId, Token, Want};

/// The arguments of the commands that acquire one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The owner; `None`: the server generates one (`*`).
    pub owner: Option<Owner>,
    /// The request's demand on the lock.
    pub want: Want,
    /// The lease.
    pub lease: LeaseChoice,
    /// `MAXHOLD` or `dlock.max-hold`, the smaller of both: not shorter than the lease that the command gives.
    pub cap: Option<Lease>,
    /// How long the request may wait, in ms; 0 is forever; `None`: not at all.
    pub block: Option<u64>,
    /// `SESSION` or `SESSIONID`.
    pub session: BindTo<SessionId>,
    /// `MINTOKEN`; at most `dlock.max-token-lead` ahead of the clock.
    pub min_token: Option<Token>,
    /// `REQUEST`; never with an owner that the server generates.
    pub request: Option<RequestId>,
}

impl Acquire {
    /// Reads the words after the key of `command`.
    ///
    /// # Errors
    /// A [`Malformed`]: the first wrong word, or a wrong combination of words.
    #[inline(always)]
    pub fn parse<'call>(
        words: impl Iterator<Item = &'call [u8]>,
        command: Command,
        limits: Limits,
    ) -> Result<Acquire, Malformed> {
        let mut words = Words::new(words);
        let named = words.required()?;
        let owner = if named == b"*" { None } else { Some(owner(named)?) };
        let limit = match command {
            Command::Sacquire => Some(words.limit()?),
            _ => None,
        };
        let (mut chosen, mut block, mut session, mut request, mut permits) = (None, None, None, None, None);
        let (mut min_token, mut max_hold) = (None, None);
        while let Some(word) = words.word() {
            // `EX` and `PX` are the only options of two letters, and most commands have one: no other name is compared.
            if word.len() == 2 {
                one_of(&mut chosen, words.lease(word, limits)?)?;
            } else if is(word, "BLOCK") {
                once(&mut block, words.timeout()?, "BLOCK")?;
            } else if is(word, "SESSION") {
                one_of(&mut session, (BindTo::Connection, "SESSION"))?;
            } else if is(word, "SESSIONID") {
                one_of(&mut session, (BindTo::Named(words.session()?), "SESSIONID"))?;
            } else if is(word, "REQUEST") {
                once(&mut request, words.request(command)?, "REQUEST")?;
            } else if is(word, "MAXHOLD") {
                once(&mut max_hold, words.cap()?, "MAXHOLD")?;
            } else if limit.is_some() && is(word, "PERMITS") {
                one_of(&mut permits, (Some(words.permits()?), "PERMITS"))?;
            } else if limit.is_some() && is(word, "SLOT") {
                one_of(&mut permits, (None, "SLOT"))?;
            } else if has_min_token(command) && is(word, "MINTOKEN") {
                once(&mut min_token, words.token("MINTOKEN")?, "MINTOKEN")?;
            } else {
                one_of(&mut chosen, words.lease(word, limits)?)?;
            }
        }
        if let Some(least) = min_token {
            check_lead(least, limits)?;
        }
        if owner.is_none() && request.is_some() {
            return Err(Malformed::RequestOfFreshOwner);
        }
        let want = match limit {
            Some(limit) => limited(limit, permits.map_or(Some(NonZeroU32::MIN), |(permits, _)| permits))?,
            None => want(command),
        };
        let session = binding(session, chosen)?;
        let cap = cap(max_hold, limits, chosen, &session)?;
        let lease = chosen.map_or(LeaseChoice::Own, |(lease, _)| lease);
        Ok(Acquire { owner, want, lease, cap, block, session, min_token, request })
    }
}

/// Returns the demand of `SACQUIRE`: this many permits; `None`: one permit with a number (`SLOT`).
fn limited(limit: NonZeroU32, permits: Option<NonZeroU32>) -> Result<Want, Malformed> {
    match permits {
        None => Ok(Want::Slot { limit }),
        Some(permits) if permits > limit => Err(Malformed::PermitsOverLimit),
        Some(permits) => Ok(Want::Permits { permits, limit }),
    }
}

/// Returns whether the command takes `MINTOKEN`. Only commands that a quorum offers do.
fn has_min_token(command: Command) -> bool {
    match command {
        Command::Acquire | Command::Racquire | Command::Rlock | Command::Wlock => true,
        Command::Sacquire | Command::Macquire | Command::Release => false,
    }
}

fn want(command: Command) -> Want {
    match command {
        Command::Acquire | Command::Macquire | Command::Release => Want::ExclusiveOnce,
        Command::Racquire | Command::Wlock => Want::Exclusive,
        Command::Rlock | Command::Sacquire => Want::Shared,
    }
}

/// The arguments of `MACQUIRE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireAll<'call> {
    /// The keys: 1 to [`AcquireAll::MAX_KEYS`], each once.
    pub keys: SmallVec<[&'call [u8]; 8]>,
    /// The arguments after the keys.
    pub acquire: Acquire,
}

impl<'call> AcquireAll<'call> {
    /// The most keys.
    pub const MAX_KEYS: usize = 64;

    /// Reads the words after the command's name.
    ///
    /// # Errors
    /// A [`Malformed`]: the first wrong word, or a wrong combination of words.
    pub fn parse(words: impl Iterator<Item = &'call [u8]>, limits: Limits) -> Result<AcquireAll<'call>, Malformed> {
        let mut words = Words::new(words);
        let number = words.required_integer("numkeys")?;
        if number <= 0 {
            return Err(Malformed::NoKeys);
        }
        let mut keys: SmallVec<[&[u8]; 8]> = SmallVec::new();
        for _ in 0..number {
            // At least an owner follows the keys, so `numkeys` is too large if the words end among the keys.
            keys.push(words.word().ok_or(Malformed::TooManyKeys)?);
            if keys.len() > Self::MAX_KEYS {
                return Err(Malformed::KeyCount);
            }
        }
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        if sorted.first().is_some_and(|key| key.is_empty()) {
            return Err(Malformed::EmptyKey);
        }
        let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
        if let Some((key, _)) = pairs.find(|(key, next)| key == next) {
            return Err(Malformed::SameKey(Excerpt::of(key)));
        }
        let acquire = Acquire::parse(words.rest(), Command::Macquire, limits).map_err(|error| match error {
            Malformed::Arity => Malformed::TooManyKeys,
            error => error,
        })?;
        Ok(AcquireAll { keys, acquire })
    }

    /// Returns `numkeys`, the first of the words after the command's name; `None` if it is invalid, or leaves no word
    /// for an owner. The keys follow it.
    pub fn key_count(words: impl Iterator<Item = &'call [u8]>) -> Option<usize> {
        let mut words = Words::new(words);
        let count = usize::try_from(words.required_integer("numkeys").ok()?).ok()?;
        (words.rest().count() > count).then_some(count)
    }
}
