//! The events, and how a seed draws them. An event says all that it needs, so that others can be left out.

mod sessions;

use std::num::NonZeroU32;
use std::ops::Range;

use dlock_core::{Command as Verb, Entries, Mode};
use dlock_testkit::histories::leave::{Leave, Renewal};
use dlock_testkit::histories::{How, Lease};
use dlock_testkit::random::Random;

/// The events of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub setting: Setting,
    pub events: Vec<Event>,
}

/// How the deployment is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub files: Files,
    /// How far the clock of each server is from the true time at the beginning, in µs.
    pub skew_us: [i64; SERVERS],
    /// By how much it is too fast, in µs a second.
    pub drift: [i64; SERVERS],
}

/// The files that a server keeps on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// An AOF with `appendfsync always`.
    AofAlways,
    /// An AOF that loses what came after the last fsync.
    AofSometimes,
    /// An RDB file now and then.
    Rdb,
}

/// An event, and the time since the one before, in µs.
#[derive(Clone, Debug)]
pub struct Event {
    pub after_us: u64,
    pub what: What,
}

/// The kinds of events. An index of things that come and go is taken modulo their number at that time.
#[derive(Clone, Debug)]
pub enum What {
    Send {
        client: usize,
        command: Command,
        fate: Fate,
    },
    /// The client sends its last request again, if it has an id.
    Again {
        client: usize,
        block: bool,
        fate: Fate,
    },
    /// A request that was late arrives.
    Arrive(usize),
    /// A server notices that a connection has ended.
    Notice(usize),
    Disconnect {
        client: usize,
        noticed: bool,
    },
    /// The time of the wait is over, or `CLIENT UNBLOCK`.
    TimeOut {
        client: usize,
    },
    /// The client does nothing for a while, and keeps its connections: `SIGSTOP`.
    Hang {
        client: usize,
        for_us: u64,
    },
    /// Nothing reaches the client, and nothing comes from it; servers hear later, or never, that its connections ended. Its
    /// last heartbeat arrives, the reply does not.
    CutOff {
        client: usize,
        for_us: u64,
    },
    /// The client is gone. Its successor has another session.
    Die {
        client: usize,
    },
    /// `DLOCK.SESSION … CLOSE`.
    CloseSession {
        client: usize,
    },
    /// A client with another user beats and closes another's session.
    Meddle {
        client: usize,
        with: usize,
    },
    /// A replica gets some units of the stream, or is synchronized.
    Replicate {
        server: usize,
        units: usize,
    },
    Fsync(usize),
    Save(usize),
    Jump {
        server: usize,
        by_us: i64,
    },
    Pause,
    Resume,
    Crash(usize),
    Restart(usize),
    /// A replica is promoted, though the primary may still run.
    Promote {
        server: usize,
    },
    /// `FAILOVER`: the primary waits until the replica has everything.
    HandOver {
        server: usize,
    },
    /// The former primary hears that a replica was promoted.
    Demote,
    Delete(usize),
    ExpireKeys,
    /// A slot moves to the other node of the cluster.
    Move {
        slot: usize,
        how: Moving,
    },
}

/// How a slot moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// Key by key.
    Migrate,
    /// All at once, while the source holds still.
    Atomic,
}

/// The fate of a request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// The connection breaks before the server has read it; whether the server notices at once.
    Lost {
        noticed: bool,
    },
    /// The connection breaks before the client has read the reply.
    ReplyLost {
        noticed: bool,
    },
    /// The client gives up, and the request arrives later.
    Late,
}

#[derive(Clone, Debug)]
pub enum Command {
    Enter {
        keys: Vec<usize>,
        how: How,
    },
    /// A client releases one of its holds.
    Release {
        hold: usize,
        entries: Entries,
        mode: Option<Mode>,
        names_token: bool,
        id: Option<u8>,
    },
    Renew {
        hold: usize,
        lease: Lease,
        binds: bool,
        names_token: bool,
        names_session: bool,
    },
    /// A release or a renewal with the key and the owner of its hold, which are known when it is sent.
    ReleaseOf(usize, Leave),
    RenewOf(usize, Renewal),
}

pub const CLIENTS: usize = 6;
/// The client that has a user of its own.
pub const OTHER_USER: usize = 4;
/// How long a client is silent.
const SILENCE_US: Range<u64> = 20_000..1_500_000;
/// Three of them replicate each other; the last is another node of the cluster.
pub const SERVERS: usize = 4;
pub const REPLICATED: usize = 3;
pub const OTHER_NODE: usize = 3;
/// The keys that are in each slot.
pub const SLOTS: [&[usize]; 2] = [&[0, 1], &[2]];
pub const KEYS: usize = 3;
pub const DEFAULT_LEASE: u64 = 500;

impl Plan {
    /// Draws the plan of this seed.
    pub fn of(seed: u64) -> Plan {
        let mut plan = Plan::without_sessions(seed);
        let random = &mut Random::of(seed, "sessions");
        if !random.one_in(4) {
            sessions::add(&mut plan, random);
        }
        plan
    }

    /// Returns the same without named sessions, and without caps.
    pub fn without_sessions(seed: u64) -> Plan {
        let random = &mut Random::of(seed, "deployment");
        let files = random.pick(&[Files::AofAlways, Files::AofSometimes, Files::Rdb]);
        let is_wrong = random.one_in(2);
        let clock = |random: &mut Random| if is_wrong { random.around_zero(300_000) } else { 0 };
        let skew_us = std::array::from_fn(|_| clock(random));
        let drift = std::array::from_fn(|_| if is_wrong { random.around_zero(500) } else { 0 });
        let count = random.within(40..160);
        let mood = Mood { fails: !random.one_in(4), jumps: random.one_in(3), moves: random.one_in(3) };
        let events = (0..count).map(|_| event(random, mood)).collect();
        Plan { setting: Setting { files, skew_us, drift }, events }
    }
}

/// The kinds of events that are possible in a run.
#[derive(Clone, Copy)]
struct Mood {
    fails: bool,
    jumps: bool,
    moves: bool,
}

fn event(random: &mut Random, mood: Mood) -> Event {
    let after_us = match random.below(10) {
        0 => random.within(100_000..600_000),
        1..=3 => random.within(10_000..100_000),
        _ => random.within(10..10_000),
    };
    Event { after_us, what: what(random, mood) }
}

fn what(random: &mut Random, mood: Mood) -> What {
    let client = random.below(CLIENTS as u64) as usize;
    let server = random.below(REPLICATED as u64) as usize;
    let any = random.below(1000) as usize;
    match random.below(100) {
        0..=37 => What::Send { client, command: enter(random), fate: fate(random, mood) },
        38..=53 => What::Send { client, command: leave(random), fate: fate(random, mood) },
        54..=59 => What::Send { client, command: renew(random), fate: fate(random, mood) },
        60..=65 => What::Again { client, block: !random.one_in(4), fate: fate(random, mood) },
        66..=68 => What::Arrive(any),
        69..=71 => What::Notice(any),
        72..=73 => What::Disconnect { client, noticed: random.one_in(2) },
        74..=75 => What::TimeOut { client },
        76..=84 => What::Replicate { server, units: 1 + any % 12 },
        85 => What::Fsync(server),
        86 => What::Save(server),
        87 if random.one_in(2) => What::Delete(any % KEYS),
        87 => What::ExpireKeys,
        88 | 89 if mood.jumps => {
            What::Jump { server: random.below(SERVERS as u64) as usize, by_us: random.around_zero(1_500_000) }
        }
        90 => What::Pause,
        91 | 92 => What::Resume,
        93 if mood.fails => What::Crash(server),
        94 if mood.fails => What::Restart(server),
        95 if mood.fails => What::Promote { server },
        96 if mood.fails => What::HandOver { server },
        97 if mood.fails => What::Demote,
        98 if mood.moves && random.one_in(2) => {
            What::Move { slot: any % SLOTS.len(), how: random.pick(&[Moving::Migrate, Moving::Atomic]) }
        }
        _ => What::Replicate { server, units: 100 },
    }
}

fn fate(random: &mut Random, mood: Mood) -> Fate {
    if !mood.fails {
        return Fate::Answered;
    }
    let noticed = random.one_in(2);
    match random.below(20) {
        0 => Fate::Lost { noticed },
        1 | 2 => Fate::ReplyLost { noticed },
        3 => Fate::Late,
        _ => Fate::Answered,
    }
}

fn enter(random: &mut Random) -> Command {
    let key = random.pick(&[0, 0, 0, 0, 1, 1, 2]);
    let (keys, how) = match random.below(20) {
        0..=3 => (vec![key], How::new(Verb::Acquire)),
        4..=7 => (vec![key], How::new(Verb::Racquire)),
        8..=11 => (vec![key], How::new(Verb::Rlock)),
        12..=16 => {
            let limit = 1 + random.below(5) as u32;
            let permits = 1 + random.below(u64::from(limit.min(3))) as u32;
            (vec![key], How::permits(permits, limit))
        }
        _ => (random.pick(&[vec![0, 1], vec![1, 0]]), How::new(Verb::Macquire)),
    };
    let binds = random.one_in(3);
    let lease = lease(random, binds);
    let id = random.one_in(2).then(|| random.below(3) as u8);
    Command::Enter { keys, how: How { lease, blocks: !random.one_in(4), binds, id, ..how } }
}

fn leave(random: &mut Random) -> Command {
    let entries = match random.below(6) {
        0 | 1 => Entries::All,
        2 => Entries::Some(nonzero(2)),
        _ => Entries::ONE,
    };
    let hold = random.below(8) as usize;
    let mode = random.one_in(6).then(|| random.pick(&[Mode::Exclusive, Mode::Shared]));
    let id = random.one_in(3).then(|| random.below(3) as u8);
    Command::Release { hold, entries, mode, names_token: random.one_in(2), id }
}

fn renew(random: &mut Random) -> Command {
    let (hold, binds) = (random.below(8) as usize, random.one_in(2));
    let lease = lease(random, binds);
    Command::Renew { hold, lease, binds, names_token: random.one_in(2), names_session: false }
}

fn lease(random: &mut Random, binds: bool) -> Lease {
    match random.below(4) {
        0 => Lease::Own,
        1 if !binds => Lease::For(random.within(5..120)),
        _ => Lease::For(random.within(300..900)),
    }
}

fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}
