//! The arguments of every command, read by the core and by a second parser, `plain`.
//!
//! The first byte picks the command, the second the clock, the third the other limits. Then come the
//! words, each on a line.

mod keyless;
mod plain;

use dlock_core::args::{Acquire, AcquireAll, Check, Info, Limits, Malformed, Release, Renew};
use dlock_core::engine::Detail;
use dlock_core::{BindTo, Command, Entries, Lease, LeaseChoice, Mode, Owner, RenewToken, RequestId, SessionId, Want};

use dlock_testkit::bytes::Bytes;
use dlock_testkit::histories::How;

/// Reads the bytes as the arguments of a command.
pub fn args(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let call = bytes.pick(&calls());
    let (now_us, (max_lease, max_hold, max_token_lead)) = (bytes.pick(&CLOCKS), bytes.pick(&LIMITS));
    let max_lease = Lease::new(max_lease).unwrap();
    let limits = Limits { now_us, max_lease, max_hold: Lease::new(max_hold), max_token_lead };
    let lines = bytes.rest();
    let words: Vec<Vec<u8>> =
        if lines.is_empty() { Vec::new() } else { lines.split(|byte| *byte == b'\n').map(long).collect() };
    match call {
        Call::Session => return keyless::session(&words),
        Call::Log => return keyless::log(&words),
        _ => {}
    }
    let parsed = parse(call, &words, limits);
    // The core does not keep which option gave the lease.
    let expected = plain::plain(call, &words, limits).map(|said| Said { lease_option: None, ..said });
    assert_eq!(parsed, expected, "{call:?} {limits:?}: {}", shown(&words));
}

/// A command's arguments, in plain values.
#[derive(Debug, Default, PartialEq)]
struct Said {
    /// The keys, if the command has several.
    keys: Vec<Vec<u8>>,
    owner: Option<Vec<u8>>,
    /// The limit of a semaphore.
    limit: Option<u64>,
    permits: Option<u64>,
    slot: bool,
    lease: PlainLease,
    cap: Option<u64>,
    block: Option<u64>,
    request: Option<(Option<Command>, Vec<u8>)>,
    mode: Option<Mode>,
    all: bool,
    session: PlainSession,
    /// `BREAK`.
    is_break: bool,
    /// The option that has given the lease.
    lease_option: Option<&'static str>,
    token: Option<(Fence, u64)>,
    /// The number of entries that `INFO` shows of each list.
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum PlainLease {
    #[default]
    Own,
    For(u64),
    Until(u64),
}

#[derive(Clone, Debug, Default, PartialEq)]
enum PlainSession {
    #[default]
    None,
    Connection,
    Named(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fence {
    Is,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Enter(Command),
    Release,
    Renew,
    Check,
    Info,
    Session,
    Log,
}

fn parse(call: Call, words: &[Vec<u8>], limits: Limits) -> Result<Said, Malformed> {
    let words = words.iter().map(Vec::as_slice);
    let bytes = |owner: Owner| owner.text().to_vec();
    let asked = |request: RequestId| (Some(request.command()), request.id().to_vec());
    Ok(match call {
        Call::Enter(command) => {
            let (keys, acquire) = if command == Command::Macquire {
                let AcquireAll { keys, acquire } = AcquireAll::parse(words, limits)?;
                (keys.iter().map(|key| key.to_vec()).collect(), acquire)
            } else {
                (Vec::new(), Acquire::parse(words, command, limits)?)
            };
            let Acquire { owner, want, lease, cap, block, session, min_token, request } = acquire;
            let session = plain_binding(session);
            let expected = How::new(command).want;
            let limit = want.limit().map(u64::from);
            let (permits, slot) = match want {
                Want::Permits { permits, .. } => (Some(u64::from(permits.get())), false),
                Want::Slot { .. } => (Some(1), true),
                want => {
                    assert_eq!(want, expected, "{command:?}");
                    (None, false)
                }
            };
            let (owner, request, lease) = (owner.map(bytes), request.map(asked), plain_lease(lease));
            let token = min_token.map(|token| (Fence::AtLeast, token.get()));
            let cap = cap.map(Lease::get);
            Said { keys, owner, limit, permits, slot, lease, cap, block, session, token, request, ..Said::default() }
        }
        Call::Release => {
            let Release { owner, mode, entries, token, is_break, request } = Release::parse(words)?;
            let (owner, request) = (Some(bytes(owner)), request.map(asked));
            let (all, permits) = match entries {
                Entries::All => (true, None),
                Entries::Some(entries) => (false, Some(u64::from(entries.get()))),
            };
            let token = token.map(|token| (Fence::Is, token.get()));
            Said { owner, permits, mode, all, token, is_break, request, ..Said::default() }
        }
        Call::Renew => {
            let Renew { owner, lease, mode, token, session } = Renew::parse(words, limits)?;
            let session = plain_binding(session);
            let token = match token {
                RenewToken::Any => None,
                RenewToken::Is(token) => Some((Fence::Is, token.get())),
                RenewToken::AtLeast(token) => Some((Fence::AtLeast, token.get())),
            };
            let lease = plain_lease(lease);
            Said { owner: Some(bytes(owner)), lease, mode, token, session, ..Said::default() }
        }
        Call::Check => Said { token: Some((Fence::Is, Check::parse(words)?.token.get())), ..Said::default() },
        Call::Info => match Info::parse(words)?.0 {
            Detail::Summary => Said::default(),
            Detail::OfOwner(owner) => Said { owner: Some(bytes(owner)), ..Said::default() },
            Detail::Full(count) => Said { count: Some(count as u64), ..Said::default() },
        },
        Call::Session | Call::Log => unreachable!("commands without a key have checks of their own"),
    })
}

fn plain_binding(session: BindTo<SessionId>) -> PlainSession {
    match session {
        BindTo::Nothing => PlainSession::None,
        BindTo::Connection => PlainSession::Connection,
        BindTo::Named(id) => PlainSession::Named(id.as_bytes().to_vec()),
    }
}

fn plain_lease(lease: LeaseChoice) -> PlainLease {
    match lease {
        LeaseChoice::Own => PlainLease::Own,
        LeaseChoice::For(lease) => PlainLease::For(lease.get()),
        LeaseChoice::Until(deadline) => PlainLease::Until(deadline.get()),
    }
}

/// A line is a word. One that begins with a byte 1 stands for a long one.
fn long(line: &[u8]) -> Vec<u8> {
    match line {
        [1, len, rest @ ..] => [vec![b'x'; usize::from(*len) * 5], rest.to_vec()].concat(),
        _ => line.to_vec(),
    }
}

fn shown(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

/// All commands. Those that are not among the first come at the end, so that the bytes of the corpus keep their meaning.
fn calls() -> Vec<Call> {
    let acquiring = Command::ALL.into_iter().filter(|command| *command != Command::Release).map(Call::Enter);
    let more = acquiring.filter(|call| !FIRST.contains(call));
    FIRST.into_iter().chain(more).collect()
}

const FIRST: [Call; 12] = [
    Call::Enter(Command::Acquire),
    Call::Enter(Command::Racquire),
    Call::Enter(Command::Rlock),
    Call::Enter(Command::Wlock),
    Call::Release,
    Call::Renew,
    Call::Check,
    Call::Info,
    Call::Enter(Command::Sacquire),
    Call::Enter(Command::Macquire),
    Call::Session,
    Call::Log,
];

/// Unix µs: a usual time, the epoch, and one that no sum may overflow.
const CLOCKS: [u64; 3] = [1_795_214_026_913_141, 0, 1 << 62];
/// The longest lease, the longest hold (0 is no limit), and how far `MINTOKEN` may be ahead of the clock.
const LIMITS: [(u64, u64, u64); 6] = [
    (31_536_000_000, 0, 10_000),
    (60_000, 0, 3_600_000),
    (1, 0, 0),
    (31_536_000_000, 30_000, 10_000),
    (60_000, 299, 1),
    (1, 90_000, 10_000),
];
