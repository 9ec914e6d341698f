//! What can happen, and how it is drawn.

use dlock_core::{Entries, Mode, Reentry};
use dlock_testkit::random::Random;

use crate::model::{Ask, Asked, Fence, Hold, Key, Lease, Leave, Model, Owner, Renew, What};

/// A command of one connection about one key.
#[derive(Clone, Debug)]
pub enum Request {
    Enter(Ask),
    Release(Leave),
    Renew(Renew),
    Check(u64),
    Delete,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    Ask(usize, Key, Request),
    /// With `BLOCK` for a moment, until it has passed.
    AskBriefly(usize, Key, Ask),
    Transaction(usize, Vec<(Key, Request)>),
    /// From a script, where there is no client to block or to bind to.
    Script(usize, Key, Request),
    Overwrite(usize, Key),
    Rename(usize, Key, Key),
    Move(usize, Key),
    Swap(usize),
    Flush(usize, Option<u8>),
    /// `PEXPIRE` in a moment, until the key is gone.
    Expire(usize, Key),
    /// `PERSIST` or a late `PEXPIRE`, which is put back.
    Outlive(usize, Key, bool),
    /// A hold is given a moment more, until that has passed.
    Lapse(usize, Key, u64),
    /// A connection ends, closed by the client or by the server.
    Disconnect(usize, bool),
    /// `CLIENT UNBLOCK`, with an error or without.
    Unblock(usize, bool),
}

/// What steps are drawn from.
pub struct Scene<'a> {
    pub model: &'a Model,
    /// Connections that do not wait.
    pub idle: &'a [usize],
    pub waiting: &'a [usize],
    pub now: u64,
    /// Whether there are steps that take a moment to pass.
    pub with_time: bool,
}

/// The database of a connection.
pub fn db_of(connection: usize) -> u8 {
    u8::from(connection >= CONNECTIONS - 2)
}

/// The next step; there is an idle connection.
pub fn draw(random: &mut Random, scene: &Scene) -> Option<Step> {
    let who = random.pick_if_any(scene.idle)?;
    let key = key(random, who);
    let may_block = scene.idle.len() > 1;
    Some(match random.below(100) {
        0..42 => Step::Ask(who, key, Request::Enter(ask(random, scene, may_block))),
        42..58 => {
            let (key, release) = release(random, scene, who);
            Step::Ask(who, key, Request::Release(release))
        }
        58..65 => {
            let (key, renew) = renew(random, scene, who);
            Step::Ask(who, key, Request::Renew(renew))
        }
        65..68 => Step::Ask(who, key, Request::Check(token(random, scene))),
        68..72 => Step::Ask(who, key, Request::Delete),
        72..76 => Step::Transaction(who, (0..2 + random.below(3)).map(|_| inner(random, scene, who)).collect()),
        76..79 => {
            let (key, request) = inner(random, scene, who);
            Step::Script(who, key, request)
        }
        79..82 => rename(random, who, key),
        82..84 => Step::Move(who, key),
        84 => Step::Swap(who),
        85 => Step::Flush(who, random.pick(&[None, Some(db_of(who))])),
        86 => Step::Overwrite(who, key),
        87..89 => Step::Outlive(who, key, random.one_in(2)),
        89..93 => Step::Disconnect(any(random), random.one_in(2)),
        93..96 if !scene.waiting.is_empty() => Step::Unblock(random.pick(scene.waiting), random.one_in(2)),
        96 if scene.with_time => Step::AskBriefly(who, key, Ask { blocks: true, ..ask(random, scene, false) }),
        97 if scene.with_time => Step::Expire(who, key),
        98..100 if scene.with_time => {
            let holds: Vec<(Key, u64)> = // The server keeps a bound hold alive.
                held(scene, who).filter(|(_, hold)| hold.session.is_none()).map(|(key, hold)| (key, hold.token)).collect();
            match random.pick_if_any(&holds) {
                Some((key, token)) => Step::Lapse(who, key, token),
                None => Step::Ask(who, key, Request::Delete),
            }
        }
        _ => Step::Ask(who, key, Request::Enter(ask(random, scene, may_block))),
    })
}

fn any(random: &mut Random) -> usize {
    usize::try_from(random.below(CONNECTIONS as u64)).unwrap_or(0)
}

fn key(random: &mut Random, who: usize) -> Key {
    (db_of(who), random.pick(&NAMES))
}

fn rename(random: &mut Random, who: usize, from: Key) -> Step {
    let others: Vec<&str> = NAMES.iter().copied().filter(|name| *name != from.1).collect();
    Step::Rename(who, from, (from.0, random.pick(&others)))
}

fn inner(random: &mut Random, scene: &Scene, who: usize) -> (Key, Request) {
    let key = key(random, who);
    match random.below(10) {
        0..5 => (key, Request::Enter(ask(random, scene, true))),
        5..8 => {
            let (key, release) = release(random, scene, who);
            (key, Request::Release(release))
        }
        8 => {
            let (key, renew) = renew(random, scene, who);
            // The token of a hold that the same transaction made is not known, and so not what MINTOKEN makes of it.
            let fence = if matches!(renew.fence, Fence::AtLeast(_)) { Fence::Any } else { renew.fence };
            (key, Request::Renew(Renew { fence, ..renew }))
        }
        _ => (key, Request::Delete),
    }
}

fn ask(random: &mut Random, scene: &Scene, may_block: bool) -> Ask {
    let (what, mode, reentry) = random.pick(&COMMANDS);
    let is_made_up = random.one_in(25);
    let blocks = may_block && !is_made_up && random.below(10) < 7;
    let request = (!is_made_up && random.one_in(3)).then(|| u8::try_from(random.below(3)).unwrap_or(0));
    let lease = lease(random, scene);
    let binds = random.one_in(4) && !matches!(lease, Lease::Until(_));
    // The model needs a name of its own until the server says which it made up.
    let owner = if is_made_up { format!("*{}", random.number()).into_bytes() } else { owner(random) };
    Ask { what, owner, is_made_up, mode, reentry, lease, blocks, binds, request }
}

/// Mostly of a hold there is.
fn release(random: &mut Random, scene: &Scene, who: usize) -> (Key, Leave) {
    let (key, owner) = somebody(random, scene, who);
    let entries = if random.one_in(4) { Entries::All } else { Entries::One };
    let token = random.one_in(4).then(|| token(random, scene));
    let id = random.one_in(3).then(|| u8::try_from(random.below(3)).unwrap_or(0));
    let request = id.map(|id| Asked { what: What::Release, id });
    (key, Leave { owner, mode: mode(random), entries, token, request })
}

fn renew(random: &mut Random, scene: &Scene, who: usize) -> (Key, Renew) {
    let (key, owner) = somebody(random, scene, who);
    let fence = match random.below(6) {
        0 => Fence::Is(token(random, scene)),
        1 => Fence::AtLeast(token(random, scene) + random.below(3) * 1000),
        _ => Fence::Any,
    };
    let lease = lease(random, scene);
    let binds = random.one_in(4) && !matches!(lease, Lease::Until(_));
    (key, Renew { owner, mode: mode(random), lease, fence, binds })
}

fn held<'a>(scene: &'a Scene, who: usize) -> impl Iterator<Item = (Key, &'a Hold)> {
    scene.model.all_holds().filter(move |((db, _), _)| *db == db_of(who))
}

fn somebody(random: &mut Random, scene: &Scene, who: usize) -> (Key, Owner) {
    let holders: Vec<(Key, Owner)> = held(scene, who).map(|(key, hold)| (key, hold.owner.clone())).collect();
    match random.pick_if_any(&holders) {
        Some(holder) if !random.one_in(8) => holder,
        Some(_) | None => (key(random, who), owner(random)),
    }
}

/// Mostly of a hold there is, or of one there was.
fn token(random: &mut Random, scene: &Scene) -> u64 {
    let live: Vec<u64> = scene.model.all_holds().map(|(_, hold)| hold.token).collect();
    let ever: Vec<u64> = scene.model.seen.iter().copied().collect();
    let from = if random.one_in(8) { &ever } else { &live };
    random.pick_if_any(from).unwrap_or(0).max(1)
}

fn mode(random: &mut Random) -> Option<Mode> {
    random.pick(&[None, None, Some(Mode::Exclusive), Some(Mode::Shared)])
}

fn lease(random: &mut Random, scene: &Scene) -> Lease {
    // Far enough from each other to be told apart, and far from lapsing.
    let ms = 1_000_000 + random.below(20) * 60_000;
    match random.below(6) {
        0..2 => Lease::Own,
        2 => Lease::Until((scene.now + ms) / 1000 * 1000),
        _ => Lease::For(ms),
    }
}

fn owner(random: &mut Random) -> Owner {
    match random.below(8) {
        0 => b"0f8fad5b-d9cb-469f-a165-70867728950e".to_vec(),
        1 => b"\0\r\n\xff".to_vec(),
        number => format!("owner-{}", number % 5).into_bytes(),
    }
}

/// The last two are in database 1, the others in database 0.
pub const CONNECTIONS: usize = 7;
pub const NAMES: [&str; 3] = ["a", "b", "c"];

const COMMANDS: [(What, Mode, Reentry); 6] = [
    (What::Acquire, Mode::Exclusive, Reentry::Refuse),
    (What::Racquire, Mode::Exclusive, Reentry::Count),
    (What::Rlock, Mode::Shared, Reentry::Count),
    (What::Rlock, Mode::Shared, Reentry::Count),
    (What::Rlock, Mode::Shared, Reentry::Count),
    (What::Wlock, Mode::Exclusive, Reentry::Count),
];
