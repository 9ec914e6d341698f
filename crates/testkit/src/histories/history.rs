//! Which steps a history has, and how they are drawn.

use dlock_core::{Entries, Mode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::num::NonZeroU32;

/// What the operator set, and what happens then.
#[derive(Clone, Debug)]
pub struct History {
    /// The lease of a new hold that names none, in ms.
    pub default_lease: u64,
    /// `dlock.session-grace`, in ms.
    pub grace: Option<u64>,
    /// `dlock.max-waiters`.
    pub max_waiters: Option<usize>,
    /// So many owners hold the first lock shared when the history begins, bound to the clients in turn.
    pub crowd: usize,
    /// What happens.
    pub steps: Vec<Step>,
}

/// Something happens, and perhaps the timer runs then.
#[derive(Clone, Debug)]
pub struct Step {
    pub op: Op,
    pub then_tick: bool,
}

/// The number of a key: see [`KEYS`].
pub type KeyNo = usize;
/// The number of an owner.
pub type Who = usize;
/// The number of a client. A client that is gone is followed by another with this number.
pub type ClientNo = usize;

/// Databases and names. `SWAPDB` exchanges the first three and the last three.
pub const KEYS: [(i32, &str); 6] = [(0, "k0"), (0, "k1"), (0, "k2"), (1, "k0"), (1, "k1"), (1, "k2")];

#[derive(Clone, Debug)]
pub enum Op {
    /// Time goes on, so many µs.
    Wait(u64),
    Acquire(Acquiring),
    /// The owner of some hold asks for the write mode.
    Upgrade {
        client: ClientNo,
        key: KeyNo,
        holder: usize,
        lease: Lease,
    },
    /// The last request that had an id comes again.
    Resend {
        client: ClientNo,
        block: bool,
    },
    Release {
        key: KeyNo,
        who: Somebody,
        mode: Option<Mode>,
        entries: Entries,
        token: Option<TokenPick>,
        id: Option<u8>,
    },
    Renew {
        client: ClientNo,
        key: KeyNo,
        who: Somebody,
        mode: Option<Mode>,
        lease: Lease,
        token: TokenRule,
        binds: bool,
    },
    /// The time of the waiter with this number is over.
    Abandon(usize),
    ClientGone(ClientNo),
    /// `PEXPIRE`, in ms from now; 0 deletes.
    Expire(KeyNo, u64),
    Persist(KeyNo),
    Delete(KeyNo),
    /// `SET`: another type.
    Overwrite(KeyNo),
    Rename(KeyNo, KeyNo),
    /// `DUMP` and `RESTORE … REPLACE`, with a TTL or none.
    Restore(KeyNo, KeyNo, Option<u64>),
    Flush(Option<i32>),
    Swap,
    Reload,
    /// The server removes what has expired.
    ExpireActively,
    /// What the server lets timers do to a key.
    Permit(KeyNo, Permit),
    /// The slot of a key moves to another node.
    MoveAway(KeyNo),
    Pause,
    Resume,
    Demote,
    Promote,
    /// From now on, clients may read every key, or only those that they name.
    Blind(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    Full,
    ReleaseOnly,
    Elsewhere,
}

/// A request to enter one lock or several.
#[derive(Clone, Debug)]
pub struct Acquiring {
    pub client: ClientNo,
    /// `None`: `*`.
    pub owner: Option<Who>,
    pub what: What,
    pub lease: Lease,
    pub block: bool,
    pub binds: bool,
    /// `MINTOKEN`, so many µs ahead of the clock.
    pub ahead: Option<u32>,
    pub id: Option<u8>,
}

#[derive(Clone, Debug)]
pub enum What {
    Acquire(KeyNo),
    Racquire(KeyNo),
    Rlock(KeyNo),
    /// Permits and limit.
    Sacquire(KeyNo, NonZeroU32, NonZeroU32),
    /// Different keys of one database.
    Macquire(Vec<KeyNo>),
}

/// Who releases or renews: found when the history is played, so that most have something to release.
#[derive(Clone, Copy, Debug)]
pub enum Somebody {
    /// The owner of some hold.
    Holder(usize),
    Any(Who),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    Own,
    For(u64),
    /// Until this many ms from now.
    Until(u64),
}

#[derive(Clone, Copy, Debug)]
pub enum TokenRule {
    Any,
    Is(TokenPick),
    /// At least the picked token and so much more.
    AtLeast(TokenPick, u64),
}

/// Which token a command names.
#[derive(Clone, Copy, Debug)]
pub enum TokenPick {
    Mine(Mode),
    Of(usize),
    Never,
}

/// A history of a few owners that get in each other's way.
pub fn history() -> impl Strategy<Value = History> {
    (
        settings(),
        prop_oneof![vec(step(), 1..40), vec(step(), 1..140)],
        prop_oneof![12 => Just(0_usize), 1 => 65..160_usize],
    )
        .prop_map(|((default_lease, grace, max_waiters), steps, crowd)| History {
            default_lease,
            grace,
            max_waiters,
            crowd,
            steps,
        })
}

fn settings() -> impl Strategy<Value = (u64, Option<u64>, Option<usize>)> {
    let grace = prop_oneof![3 => Just(None), 1 => (1..60_u64).prop_map(Some), 1 => (300..900_u64).prop_map(Some)];
    let max = prop_oneof![4 => Just(None), 1 => (0..5_usize).prop_map(Some)];
    (prop_oneof![Just(60_u64), Just(500_u64)], grace, max)
}

fn step() -> impl Strategy<Value = Step> {
    (op(), prop::bool::weighted(0.7)).prop_map(|(op, then_tick)| Step { op, then_tick })
}

fn op() -> impl Strategy<Value = Op> {
    let release = (key(), somebody(), option::weighted(0.3, mode()), entries(), option::weighted(0.2, pick()), id())
        .prop_map(|(key, who, mode, entries, token, id)| Op::Release { key, who, mode, entries, token, id });
    let renew =
        (client(), key(), somebody(), option::weighted(0.3, mode()), lease(), rule(), prop::bool::weighted(0.4))
            .prop_map(|(client, key, who, mode, lease, token, binds)| {
                // SESSION with an absolute or a short lease is a syntax error.
                let lease = if binds { long(lease) } else { lease };
                Op::Renew { client, key, who, mode, lease, token, binds }
            });
    let time = prop_oneof![
        6 => (1..40_000_u64).prop_map(Op::Wait),
        2 => (40_000..400_000_u64).prop_map(Op::Wait),
    ];
    let lives = prop_oneof![
        20 => acquiring().prop_map(Op::Acquire),
        2 => (client(), key(), 0..20_usize, lease())
            .prop_map(|(client, key, holder, lease)| Op::Upgrade { client, key, holder, lease }),
        5 => (client(), prop::bool::weighted(0.7)).prop_map(|(client, block)| Op::Resend { client, block }),
    ];
    prop_oneof![
        24 => lives,
        10 => release,
        5 => renew,
        8 => time,
        2 => (0..6_usize).prop_map(Op::Abandon),
        3 => client().prop_map(Op::ClientGone),
        4 => rare(),
    ]
}

fn rare() -> impl Strategy<Value = Op> {
    let permit = prop_oneof![4 => Just(Permit::Full), 2 => Just(Permit::ReleaseOnly), 1 => Just(Permit::Elsewhere)];
    prop_oneof![
        3 => (key(), 0..300_u64).prop_map(|(key, ms)| Op::Expire(key, ms)),
        1 => key().prop_map(Op::Persist),
        2 => key().prop_map(Op::Delete),
        1 => key().prop_map(Op::Overwrite),
        2 => (key(), key()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => (key(), key(), option::of(1..300_u64)).prop_map(|(from, to, ttl)| Op::Restore(from, to, ttl)),
        1 => prop_oneof![Just(None), Just(Some(0)), Just(Some(1))].prop_map(Op::Flush),
        1 => Just(Op::Swap),
        1 => Just(Op::Reload),
        2 => Just(Op::ExpireActively),
        2 => (key(), permit).prop_map(|(key, permit)| Op::Permit(key, permit)),
        1 => key().prop_map(Op::MoveAway),
        2 => Just(Op::Pause),
        3 => Just(Op::Resume),
        1 => Just(Op::Demote),
        2 => Just(Op::Promote),
        1 => any::<bool>().prop_map(Op::Blind),
    ]
}

fn acquiring() -> impl Strategy<Value = Acquiring> {
    let numbers = (1..4_u32, 1..6_u32).prop_map(|(permits, limit)| (nonzero(permits.min(limit)), nonzero(limit)));
    let several = prop_oneof![
        Just(vec![0, 1]),
        Just(vec![1, 0]),
        Just(vec![1, 2]),
        Just(vec![0, 1, 2]),
        Just(vec![2, 0]),
        Just(vec![3]),
        Just(vec![0]),
    ];
    let what = prop_oneof![
        3 => key().prop_map(What::Acquire),
        3 => key().prop_map(What::Racquire),
        4 => key().prop_map(What::Rlock),
        4 => (key(), numbers).prop_map(|(key, (permits, limit))| What::Sacquire(key, permits, limit)),
        4 => several.prop_map(What::Macquire),
    ];
    let owner = prop_oneof![10 => (0..OWNERS).prop_map(Some), 1 => Just(None)];
    let ahead = prop::option::weighted(0.15, 0..2_000_000_u32);
    (client(), owner, what, lease(), prop::bool::weighted(0.7), prop::bool::weighted(0.35), ahead, id()).prop_map(
        |(client, owner, what, lease, block, binds, ahead, id)| {
            let id = id.filter(|_| owner.is_some());
            let lease = if binds { long(lease) } else { lease };
            let ahead = ahead.filter(|_| !matches!(what, What::Sacquire(..) | What::Macquire(_)));
            Acquiring { client, owner, what, lease, block, binds, ahead, id }
        },
    )
}

/// How many owners there are, beside those that the server draws.
pub const OWNERS: Who = 5;
/// How many clients there are at a time.
pub const CLIENTS: ClientNo = 4;

fn key() -> impl Strategy<Value = KeyNo> {
    prop_oneof![8 => Just(0), 5 => Just(1), 3 => Just(2), 2 => Just(3)]
}

fn client() -> impl Strategy<Value = ClientNo> {
    0..CLIENTS
}

fn id() -> impl Strategy<Value = Option<u8>> {
    option::weighted(0.4, 0..3_u8)
}

fn somebody() -> impl Strategy<Value = Somebody> {
    prop_oneof![4 => (0..20_usize).prop_map(Somebody::Holder), 1 => (0..OWNERS).prop_map(Somebody::Any)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}

fn entries() -> impl Strategy<Value = Entries> {
    let some = (1..4_u32).prop_map(|number| Entries::Some(nonzero(number)));
    prop_oneof![4 => Just(Entries::ONE), 2 => Just(Entries::All), 2 => some]
}

fn lease() -> impl Strategy<Value = Lease> {
    prop_oneof![
        3 => Just(Lease::Own),
        4 => (1..120_u64).prop_map(Lease::For),
        3 => (300..900_u64).prop_map(Lease::For),
        1 => (1..150_u64).prop_map(Lease::Until),
    ]
}

/// A lease that can stand beside `SESSION`.
pub fn long(lease: Lease) -> Lease {
    match lease {
        Lease::Own => Lease::Own,
        Lease::For(ms) => Lease::For(ms.max(300)),
        Lease::Until(ms) => Lease::For(ms + 300),
    }
}

fn rule() -> impl Strategy<Value = TokenRule> {
    prop_oneof![
        6 => Just(TokenRule::Any),
        2 => pick().prop_map(TokenRule::Is),
        1 => (pick(), 0..2000_u64).prop_map(|(pick, more)| TokenRule::AtLeast(pick, more)),
    ]
}

fn pick() -> impl Strategy<Value = TokenPick> {
    let of = (0..20_usize).prop_map(TokenPick::Of);
    prop_oneof![5 => mode().prop_map(TokenPick::Mine), 2 => of, 1 => Just(TokenPick::Never)]
}

fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}
