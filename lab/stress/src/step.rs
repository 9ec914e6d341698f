//! Steps: their kinds, and how they are drawn.

use std::num::NonZeroU32;

use dlock_core::engine::OpenIf;
use dlock_core::{Command, Entries, Mode};
use dlock_testkit::bytes::Bytes;
use dlock_testkit::histories::leave::{Fence, Leave, Renewal};
use dlock_testkit::histories::naive::{Hold, Request};
use dlock_testkit::histories::word::{Words, name_of, words};
use dlock_testkit::histories::words::{beat_words, close_words, enter_words, release_words, renew_words};
use dlock_testkit::histories::{How, KEYS, KeyNo, LONG_SESSION_MS, Lease, SessionNo, Who};
use dlock_testkit::random::Random;

use crate::model::{Model, OWNERS, db_of};

/// A command of one connection. The client is filled in when it is sent.
#[derive(Clone, Debug)]
pub enum Call {
    Enter(Request),
    Release(KeyNo, Leave),
    Renew(KeyNo, Renewal),
    Check(KeyNo, u64),
    Delete(KeyNo),
    /// A heartbeat of a named session, long enough for the round.
    Beat(SessionNo, OpenIf),
    /// `DLOCK.SESSION … CLOSE`.
    Close(SessionNo),
    /// `PEXPIRE` in ms, or `PERSIST`. The TTL is longer than the round takes.
    SetTtl(KeyNo, Option<u64>),
}

impl Call {
    /// Returns the keys that it names.
    pub fn keys(&self) -> &[KeyNo] {
        match self {
            Call::Enter(request) => &request.keys,
            Call::Release(key, _)
            | Call::Renew(key, _)
            | Call::Check(key, _)
            | Call::Delete(key)
            | Call::SetTtl(key, _) => std::slice::from_ref(key),
            Call::Beat(..) | Call::Close(_) => &[],
        }
    }

    /// Returns the words of the command. `block` is in ms.
    pub fn words(&self, model: &Model, block: u64) -> Words {
        let owner = |who: Who| model.owner(who).unwrap_or_default();
        match self {
            Call::Enter(request) => enter_words(request, &owner(request.owner), block),
            Call::Release(key, leave) => release_words(*key, &owner(leave.owner), leave),
            Call::Renew(key, renewal) => renew_words(*key, &owner(renewal.owner), renewal),
            Call::Check(key, token) => words(&format!("DLOCK.CHECK {} {token}", name_of(*key))),
            Call::Beat(session, only) => beat_words(*session, LONG_SESSION_MS, *only),
            Call::Close(session) => close_words(*session),
            Call::SetTtl(key, Some(ms)) => words(&format!("PEXPIRE {} {ms}", name_of(*key))),
            Call::SetTtl(key, None) => words(&format!("PERSIST {}", name_of(*key))),
            // Deletes in either way.
            Call::Delete(key) => words(&format!("{} {}", if key % 3 == 1 { "UNLINK" } else { "DEL" }, name_of(*key))),
        }
    }
}

/// An event. The first number is that of a connection.
#[derive(Clone, Debug)]
pub enum Step {
    Call(usize, Call),
    /// With `BLOCK` for a moment, until it has passed.
    CallBriefly(usize, Call),
    Transaction(usize, Vec<Call>),
    /// From a script, where there is no client to block or to bind to.
    Script(usize, Call),
    Overwrite(usize, KeyNo),
    Rename(usize, KeyNo, KeyNo),
    Move(usize, KeyNo, KeyNo),
    Swap(usize),
    Flush(usize, Option<i32>),
    /// `PEXPIRE` in a moment, until the key is gone.
    Expire(usize, KeyNo),
    /// `RENEW` gives a hold a lease of a moment. The step ends when that has passed. With `true`, `PERSIST` follows,
    /// and the key may stay.
    Lapse(usize, KeyNo, Who, Mode, bool),
    /// A shared hold is bound with a short lease, and its key gets an early expiry. The step ends when the watchdog has
    /// extended the lease.
    Watch(usize, KeyNo, Who),
    /// A connection ends, closed by the client or by the server.
    Disconnect(usize, bool),
    /// `CLIENT UNBLOCK`, with an error or without.
    Unblock(usize, bool),
    /// `CLIENT PAUSE … WRITE`: what happens meanwhile, and a command that the server keeps until it goes on.
    Pause(Vec<Step>, Option<(usize, Call)>),
}

impl Step {
    /// Returns whether `dlock serve` has the commands of the step. It has none for scripts and pauses, and of those for
    /// keys of any type only the ones that delete.
    pub fn is_of_locks(&self) -> bool {
        let is_of_locks = |call: &Call| !matches!(call, Call::SetTtl(..));
        match self {
            Step::Call(_, call) | Step::CallBriefly(_, call) => is_of_locks(call),
            Step::Transaction(_, calls) => calls.iter().all(is_of_locks),
            Step::Flush(..) | Step::Disconnect(..) | Step::Unblock(..) | Step::Lapse(_, _, _, _, false) => true,
            Step::Script(..)
            | Step::Overwrite(..)
            | Step::Rename(..)
            | Step::Move(..)
            | Step::Swap(_)
            | Step::Expire(..)
            | Step::Lapse(..)
            | Step::Watch(..)
            | Step::Pause(..) => false,
        }
    }
}

/// The state that steps are drawn from.
pub struct Situation<'a> {
    pub model: &'a Model,
    /// Connections that do not wait.
    pub idle: &'a [usize],
    pub waiting: &'a [usize],
    pub now: u64,
    /// Whether there are steps that take a moment to pass.
    pub with_time: bool,
}

/// Returns the database of a connection.
pub fn db_of_connection(connection: usize) -> i32 {
    i32::from(connection >= CONNECTIONS - 2)
}

/// Draws the next step. `None` if no connection is idle.
pub fn draw(random: &mut Random, situation: &Situation) -> Option<Step> {
    let who = random.pick_if_any(situation.idle)?;
    let key = key(random, who);
    let may_block = situation.idle.len() > 1;
    Some(match random.below(100) {
        0..40 => Step::Call(who, enter(random, situation, who, may_block)),
        40..55 => Step::Call(who, release(random, situation, who)),
        55..61 => Step::Call(who, renew(random, situation, who)),
        61 | 62 => Step::Call(who, session(random)),
        63 | 64 => Step::Call(who, Call::Check(key, token(random, situation))),
        65..68 => Step::Call(who, Call::Delete(key)),
        68..72 => Step::Transaction(who, (0..2 + random.below(3)).map(|_| inner(random, situation, who)).collect()),
        72..75 => Step::Script(who, inner(random, situation, who)),
        75..78 => onto(situation, who, key, other_name(random, key), Step::Rename),
        78..80 => onto(situation, who, key, (key + KEYS.len() / 2) % KEYS.len(), Step::Move),
        80 => Step::Swap(who),
        81 => Step::Flush(who, random.pick(&[None, Some(db_of(key))])),
        82 if has_queue_only(situation, key) => Step::Call(who, Call::Delete(key)),
        82 => Step::Overwrite(who, key),
        83..87 => Step::Call(who, Call::SetTtl(key, ttl(random))),
        87..91 => Step::Disconnect(any(random), random.one_in(2)),
        91..94 if !situation.waiting.is_empty() => Step::Unblock(random.pick(situation.waiting), random.one_in(2)),
        94..96 => pause(random, situation, who),
        96 if situation.with_time => Step::CallBriefly(who, enter(random, situation, who, true)),
        97 if situation.with_time => Step::Expire(who, key),
        98 if situation.with_time => lapse(random, situation, who, key),
        99 if situation.with_time => watch(random, situation, who, key),
        _ => Step::Call(who, enter(random, situation, who, may_block)),
    })
}

/// Returns whether a name has a queue and no key. The server hears that a key of another type has come there when it
/// looks at the queue next, and nobody knows when that is.
fn has_queue_only(situation: &Situation, key: KeyNo) -> bool {
    !situation.model.exists(key) && !situation.model.naive.queue(key).is_empty()
}

/// Returns whether a lock that gets the name `to` may complete a request with an id (`REQUEST`) that waits: the request
/// asks for that name, and its owner holds the lock. The waiter may then repeat a request for several locks that was
/// granted. The server notices that only when it looks at the queue next.
fn is_awaited(situation: &Situation, from: KeyNo, to: KeyNo) -> bool {
    let is_its = |waiter: &Request| situation.model.naive.live(from).any(|hold| hold.owner == waiter.owner);
    let mut waiting = situation.model.naive.waiting.iter();
    waiting.any(|waiter| waiter.how.id.is_some() && waiter.keys.contains(&to) && is_its(waiter))
}

fn onto(situation: &Situation, who: usize, from: KeyNo, to: KeyNo, step: impl Fn(usize, KeyNo, KeyNo) -> Step) -> Step {
    let is_silent =
        has_queue_only(situation, to) && (situation.model.is_other(from) || is_awaited(situation, from, to));
    if is_silent { Step::Call(who, Call::Delete(from)) } else { step(who, from, to) }
}

/// Draws a pause: steps in it, none of which writes, and perhaps a command that the server delays until the pause ends.
fn pause(random: &mut Random, situation: &Situation, who: usize) -> Step {
    let meanwhile = (0..1 + random.below(3))
        .map(|_| match random.below(7) {
            6 => Step::Call(who, session(random)),
            0 => Step::Call(who, Call::Check(key(random, who), token(random, situation))),
            1 if !situation.waiting.is_empty() => Step::Unblock(random.pick(situation.waiting), random.one_in(2)),
            _ => Step::Disconnect(any(random), random.one_in(2)),
        })
        .collect();
    let call = match random.below(4) {
        0 => None,
        1 => Some(enter(random, situation, who, false)),
        2 => Some(release(random, situation, who)),
        _ => Some(unfenced(renew(random, situation, who))),
    };
    Step::Pause(meanwhile, call.map(|call| (who, call)))
}

fn lapse(random: &mut Random, situation: &Situation, who: usize, key: KeyNo) -> Step {
    // The server keeps a bound hold alive.
    let holds = held(situation, who).filter(|(_, hold)| hold.session.is_none());
    let holds: Vec<(KeyNo, Who, Mode)> = holds.map(|(key, hold)| (key, hold.owner, hold.mode)).collect();
    match random.pick_if_any(&holds) {
        Some((key, owner, mode)) => Step::Lapse(who, key, owner, mode, random.one_in(3)),
        None => Step::Call(who, Call::Delete(key)),
    }
}

/// Draws a shared hold on a key that has another shared hold. The lease of the other hold is long, so that an expiry
/// before its end is an early one.
fn watch(random: &mut Random, situation: &Situation, who: usize, key: KeyNo) -> Step {
    let is_shared = |hold: &&Hold| hold.mode == Mode::Shared;
    let holds = held(situation, who).filter(|(_, hold)| is_shared(hold));
    let holds: Vec<(KeyNo, Who)> = holds
        .filter(|(key, _)| situation.model.naive.live(*key).filter(is_shared).count() > 1)
        .map(|(key, hold)| (key, hold.owner))
        .collect();
    match random.pick_if_any(&holds) {
        Some((key, owner)) => Step::Watch(who, key, owner),
        None => lapse(random, situation, who, key),
    }
}

fn any(random: &mut Random) -> usize {
    usize::try_from(random.below(CONNECTIONS as u64)).unwrap_or(0)
}

fn keys_of(who: usize) -> Vec<KeyNo> {
    (0..KEYS.len()).filter(|key| db_of(*key) == db_of_connection(who)).collect()
}

fn key(random: &mut Random, who: usize) -> KeyNo {
    random.pick(&keys_of(who))
}

fn other_name(random: &mut Random, from: KeyNo) -> KeyNo {
    let is_other = |key: &KeyNo| db_of(*key) == db_of(from) && name_of(*key) != name_of(from);
    random.pick(&(0..KEYS.len()).filter(is_other).collect::<Vec<_>>())
}

/// Draws a TTL far from every deadline of [`lease`], so that a delay does not change which of them is earlier.
fn ttl(random: &mut Random) -> Option<u64> {
    match random.below(4) {
        0 => None,
        1 => Some(9_000_000_000),
        _ => Some(121_000 + random.below(13) * 60_000),
    }
}

/// Draws a command of a transaction or a script. The token of a hold that it has made is not known, and so neither is
/// the effect of `MINTOKEN`, nor whether a short lease is refused.
fn inner(random: &mut Random, situation: &Situation, who: usize) -> Call {
    match random.below(11) {
        0..5 => enter(random, situation, who, true),
        5..8 => release(random, situation, who),
        8 => unfenced(renew(random, situation, who)),
        9 => Call::SetTtl(key(random, who), ttl(random)),
        _ => Call::Delete(key(random, who)),
    }
}

fn unfenced(call: Call) -> Call {
    match call {
        Call::Renew(key, renewal) => {
            let fence = if matches!(renewal.fence, Fence::AtLeast(_)) { Fence::Any } else { renewal.fence };
            let is_short = matches!(renewal.lease, Lease::For(ms) if ms < 300);
            let lease = if is_short { Lease::Own } else { renewal.lease };
            Call::Renew(key, Renewal { fence, lease, ..renewal })
        }
        call => call,
    }
}

fn enter(random: &mut Random, situation: &Situation, who: usize, may_block: bool) -> Call {
    let bytes: Vec<u8> = (0..3).flat_map(|_| random.number().to_le_bytes()).collect();
    let (_, drawn_owner, drawn_keys, how) = How::draw(&mut Bytes::new(&bytes));
    let (key, owner) = asker(random, situation, who);
    let is_drawn = drawn_owner.is_none();
    let keys = match drawn_keys.as_slice() {
        [_] => vec![key],
        several => several.iter().filter_map(|key| keys_of(who).get(*key).copied()).collect(),
    };
    // The model needs a number of its own until the server says which owner it has generated.
    let owner = if is_drawn { usize::try_from(random.number() >> 8).unwrap_or(0) + OWNERS } else { owner };
    let how = How { blocks: how.blocks && may_block, ..playable(random, situation, how) };
    Call::Enter(Request {
        ticket: 0,
        client: 0,
        owner,
        is_drawn,
        keys,
        how,
        since: 0,
        is_upgrade: false,
        session: None,
    })
}

/// Returns a request that the model can follow: nothing ends while a round runs, and no unknown token is named.
fn playable(random: &mut Random, situation: &Situation, how: How) -> How {
    let command = match how.command {
        Command::Racquire if random.one_in(2) => Command::Wlock,
        command => command,
    };
    let lease = match how.lease {
        Lease::Own => Lease::Own,
        Lease::For(_) => Lease::For(far(random)),
        Lease::Until(_) => Lease::Until((situation.now + far(random)) / 1000 * 1000),
    };
    let cap = how.cap.map(|_| cap(random, situation, lease));
    How { command, lease, cap, min_token: 0, ..how }
}

/// Draws the session of a renewal that binds: a named one half of the time, else the connection (`None`).
fn named(random: &mut Random) -> Option<SessionNo> {
    random.pick(&[None, None, Some(0), Some(1)])
}

fn session(random: &mut Random) -> Call {
    let session = random.pick(&[0, 1]);
    match random.below(8) {
        0 | 1 => Call::Close(session),
        2 => Call::Beat(session, OpenIf::New),
        3 => Call::Beat(session, OpenIf::Open),
        _ => Call::Beat(session, OpenIf::Any),
    }
}

/// Draws a release, mostly of a hold that is there.
fn release(random: &mut Random, situation: &Situation, who: usize) -> Call {
    let (key, owner) = somebody(random, situation, who);
    let entries = match random.below(8) {
        0 | 1 => Entries::All,
        2 => Entries::Some(NonZeroU32::MIN.saturating_add(1)),
        3 => Entries::Some(NonZeroU32::MIN.saturating_add(2)),
        _ => Entries::ONE,
    };
    let token = random.one_in(4).then(|| token(random, situation));
    let id = random.one_in(3).then(|| u8::try_from(random.below(3)).unwrap_or(0));
    let asked = id.map(|id| (Command::Release, id));
    Call::Release(key, Leave { owner, mode: mode(random), entries, token, asked })
}

fn renew(random: &mut Random, situation: &Situation, who: usize) -> Call {
    let bound = held(situation, who).filter(|(_, hold)| hold.session.is_some());
    let bound: Vec<(KeyNo, Who)> = bound.map(|(key, hold)| (key, hold.owner)).collect();
    let (key, owner) = match random.pick_if_any(&bound) {
        Some(holder) if random.one_in(2) => holder,
        Some(_) | None => somebody(random, situation, who),
    };
    let fence = match random.below(6) {
        0 => Fence::Is(token(random, situation)),
        1 => Fence::AtLeast(token(random, situation) + random.below(3) * 1000),
        _ => Fence::Any,
    };
    let lease = lease(random, situation);
    let binds = random.one_in(4) && !matches!(lease, Lease::Until(_));
    let renewal =
        Renewal { client: 0, owner, mode: mode(random), lease, fence, binds, named: named(random).filter(|_| binds) };
    let short = Renewal { lease: Lease::For(1 + random.below(299)), binds: false, named: None, ..renewal };
    // A short lease is sent only if no hold would get it, for example because the hold is bound.
    let is_short = random.one_in(3) && !situation.model.would_shorten(key, short);
    Call::Renew(key, if is_short { short } else { renewal })
}

fn held<'a>(situation: &'a Situation, who: usize) -> impl Iterator<Item = (KeyNo, &'a Hold)> {
    situation.model.holds().filter(move |(key, _)| db_of(*key) == db_of_connection(who))
}

fn somebody(random: &mut Random, situation: &Situation, who: usize) -> (KeyNo, Who) {
    let holders: Vec<(KeyNo, Who)> = held(situation, who).map(|(key, hold)| (key, hold.owner)).collect();
    match random.pick_if_any(&holders) {
        Some(holder) if !random.one_in(8) => holder,
        Some(_) | None => (key(random, who), owner(random)),
    }
}

/// Draws a token, mostly of a hold that is there, or of one that was.
fn token(random: &mut Random, situation: &Situation) -> u64 {
    let live: Vec<u64> = situation.model.holds().map(|(_, hold)| hold.token).collect();
    let ever: Vec<u64> = situation.model.seen.iter().copied().collect();
    let from = if random.one_in(8) { &ever } else { &live };
    random.pick_if_any(from).unwrap_or(0).max(1)
}

fn mode(random: &mut Random) -> Option<Mode> {
    random.pick(&[None, None, Some(Mode::Exclusive), Some(Mode::Shared)])
}

/// Draws a lease in ms. Two different ones are far enough apart to be told apart, and none ends during a round.
fn far(random: &mut Random) -> u64 {
    1_000_000 + random.below(20) * 60_000
}

fn lease(random: &mut Random, situation: &Situation) -> Lease {
    let ms = far(random);
    match random.below(6) {
        0..2 => Lease::Own,
        2 => Lease::Until((situation.now + ms) / 1000 * 1000),
        _ => Lease::For(ms),
    }
}

/// Draws a cap, not below the lease, and far from where any lease ends.
fn cap(random: &mut Random, situation: &Situation, lease: Lease) -> u64 {
    let given = match lease {
        Lease::Own => 0,
        Lease::For(ms) => ms,
        Lease::Until(at) => at.saturating_sub(situation.now),
    };
    500_000 + (given.saturating_sub(500_000).div_ceil(60_000) + random.below(8)) * 60_000
}

/// Draws a key and an owner. Now and then the owner waits already, so that owners wait on several connections, or it
/// has the lock shared and comes behind such an owner.
fn asker(random: &mut Random, situation: &Situation, who: usize) -> (KeyNo, Who) {
    let waiting: Vec<Who> = situation.model.naive.waiting.iter().map(|waiter| waiter.owner).collect();
    let is_several = |owner: Who| waiting.iter().filter(|other| **other == owner).count() > 1;
    let has_several = |key: KeyNo| situation.model.naive.queue(key).iter().any(|waiter| is_several(waiter.owner));
    let behind = held(situation, who).filter(|(key, hold)| hold.mode == Mode::Shared && has_several(*key));
    let behind: Vec<(KeyNo, Who)> = behind.map(|(key, hold)| (key, hold.owner)).collect();
    let anybody = (key(random, who), owner(random));
    match random.below(8) {
        0..2 => (anybody.0, random.pick_if_any(&waiting).unwrap_or(anybody.1)),
        2..4 => random.pick_if_any(&behind).unwrap_or(anybody),
        _ => anybody,
    }
}

fn owner(random: &mut Random) -> Who {
    usize::try_from(random.below(OWNERS as u64)).unwrap_or(0)
}

/// The last two are in database 1, the others in database 0.
pub const CONNECTIONS: usize = 7;
