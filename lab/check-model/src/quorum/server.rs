//! A server: an engine over keys in memory. Its clock may be ahead, and it may have forgotten its locks.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use dlock_core::engine::{Call as Command, Entered, Left, Role, Settings, WaiterId};
use dlock_core::{
    ClientId, Engine, Entries, Hold, Keyspace, Lease, LeaseChoice, Owner, Release, Renew, RenewToken, Request, Token,
    UnixMs, Want,
};
use dlock_quorum::{Answer, Ask, Facts, Keeping, Standing, standing};
use dlock_testkit::keyspace::{KeyName, MemoryKeyspace, name};

use super::{LEASE_MS, Message};

#[derive(Clone)]
pub(super) struct Server {
    engine: Engine<()>,
    space: MemoryKeyspace,
    /// How far its clock is ahead, in ms.
    ahead: u64,
    started: u64,
}

impl Server {
    /// A server that started long before.
    pub(super) fn new(ahead: u64) -> Server {
        Server { engine: Engine::new(0, SETTINGS), space: MemoryKeyspace::default(), ahead, started: 0 }
    }

    fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.space.lock(&key()).stored_holds()
    }

    /// When its holds end, and when it counts again after it has forgotten them.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        let holds = self.holds().map(move |hold| hold.deadline.get() - self.ahead);
        holds.chain((self.started > 0).then_some(self.started + YOUNG_MS))
    }

    pub(super) fn crash(&mut self, forgets: bool, now: u64) {
        let tokens = self.engine.memory_mut().tokens;
        self.engine = Engine::new(0, SETTINGS);
        if forgets {
            self.space.flush(None);
            self.started = now;
        } else {
            self.engine.memory_mut().tokens = tokens;
        }
    }

    pub(super) fn counts(&self, now: u64) -> bool {
        let facts = Facts {
            run_id: String::new(),
            uptime: Duration::from_secs((now - self.started) / 1000),
            second_repl_offset: -1,
            is_primary: true,
            is_aof_enabled: false,
        };
        let longest = Duration::from_millis(LEASE_MS);
        standing(&facts, Keeping::InMemory, longest, Duration::ZERO) == Standing::Counts
    }

    pub(super) fn run(&mut self, now: u64, message: Message) -> Answer {
        self.space.set_now_us((now + self.ahead) * 1000);
        let mut bytes = [0; 16];
        (bytes[13], bytes[14], bytes[15]) = (message.client as u8, message.acquisition, message.call.attempt as u8);
        let owner = Owner::from_uuid(bytes);
        let key = key();
        let call = Command { name: name(&key), now: self.space.now(), client: ClientId(0) };
        let lease = LeaseChoice::For(Lease::new(LEASE_MS).expect("in range"));
        let renew = |token| Renew { owner: &owner, mode: None, lease, token };
        let answer = match message.call.ask {
            Ask::Ping => Answer::Done,
            Ask::Enter | Ask::Queue(_) => {
                let ask = Request::new(owner.clone(), Want::ExclusiveOnce, lease);
                match self.engine.acquire(&mut self.space, call, &ask, None::<fn(WaiterId)>) {
                    Ok(Entered::Granted(token) | Entered::Replayed(token)) => Answer::Granted(token.get()),
                    Ok(Entered::Waiting(_) | Entered::Refused) => Answer::Refused,
                    Err(_) => Answer::Failed,
                }
            }
            Ask::Confirm(_) | Ask::Renew => {
                let token = match message.call.ask {
                    Ask::Confirm(token) => Token::new(token).map_or(RenewToken::Any, RenewToken::AtLeast),
                    _ => RenewToken::Any,
                };
                match self.engine.renew(&mut self.space, call, &renew(token), false) {
                    Ok(true) => Answer::Done,
                    Ok(false) => Answer::Gone,
                    Err(_) => Answer::Failed,
                }
            }
            Ask::Release => {
                let release = Release { owner: &owner, mode: None, entries: Entries::All, token: None, request: None };
                match self.engine.release(&mut self.space, call, &release) {
                    Ok(Left::Fully | Left::Partly) => Answer::Done,
                    Ok(Left::NotHeld) => Answer::Gone,
                    Err(_) => Answer::Failed,
                }
            }
        };
        if self.engine.wake_at().is_some_and(|at| at <= UnixMs::new(now + self.ahead)) {
            self.engine.tick(&mut self.space, Role::Primary);
        }
        drop(self.engine.take_outputs());
        drop(self.space.take_stream());
        answer
    }
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.started, self.engine.memory().tokens.last()).hash(hasher);
        for hold in self.holds() {
            (&hold.owner, hold.token, hold.deadline).hash(hasher);
        }
    }
}

fn key() -> KeyName {
    (0, b"lock".to_vec())
}

const SETTINGS: Settings = Settings { default_lease: Lease::MAX, max_waiters: None, session_grace: None };
/// After this, a server that has forgotten its locks counts: the longest lease, a second and the drift.
const YOUNG_MS: u64 = LEASE_MS + 1000 + 1100;
