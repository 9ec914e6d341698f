//! The state of the server: the engine, its keys and its clients. One thread owns it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use dlock_core::engine::{Answer, Engine, Event, Input, LogSettings, Output, Peer, Role, Settings};
use dlock_core::reply::{self, Writer};
use dlock_core::settings::{Limits, Setting};
use dlock_core::{ClientId, Name, Now, UnixMs, doubt};
use dlock_memory::Keys;

use super::around::Around;
use super::channels::Channels;
use super::client::{Client, Waiter};
use super::clock::Clock;
use super::options::ServeOptions;
use crate::stats::Stats;

thread_local! {
    /// The clients. The engine's log looks them up by a function that cannot refer to the server.
    static CLIENTS: RefCell<BTreeMap<u64, Rc<Client>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The server.
pub(super) struct Server {
    pub engine: Engine<Rc<Waiter>>,
    pub keys: Keys<Around>,
    pub clock: Rc<Clock>,
    pub options: ServeOptions,
    pub stats: Rc<Stats>,
    pub channels: Channels,
    /// The operator's settings, each at its discriminant.
    pub settings: [i64; Setting::ALL.len()],
    /// The id of this run of the server, drawn at the start. A quorum tells by it that the server was restarted.
    pub run_id: String,
    pub port: u16,
    next_id: u64,
    /// Clients that were strangers (`Client::is_stranger`) when they came, the oldest first. Some have logged in since.
    strangers: VecDeque<u64>,
    /// Locked by the client that works on its TLS handshake, so that one at a time does.
    pub handshake: Rc<tokio::sync::Mutex<()>>,
    /// The ends of waits with a limit: uptime in ms, and the client.
    ends: BTreeSet<(u64, u64)>,
    /// The bytes that clients take, of requests and replies.
    pub buffered: usize,
    /// The place at which the search for expired keys goes on.
    swept: usize,
    /// Whether the process takes more memory than it may.
    pub is_full: bool,
    /// The time at which the timer runs, by the monotonic clock: a clock that is set back does not put it off.
    armed: Option<Instant>,
    pub timer: Rc<tokio::sync::Notify>,
}

impl Server {
    pub fn new(options: ServeOptions, stats: Rc<Stats>, port: u16) -> Self {
        let clock = Rc::new(Clock::new());
        let user = options.login.as_ref().map_or("default", |login| &login.user);
        let settings = options.settings;
        let value = |which: Setting| settings.get(which as usize).copied().unwrap_or_default();
        let mut engine = Engine::new(rand::random(), Settings::of(value));
        engine.log_mut().configure(LogSettings::of(value));
        engine.log_mut().identify_by(identify);
        CLIENTS.with_borrow_mut(BTreeMap::clear);
        Self {
            engine,
            keys: Keys::new(Around::new(clock.clone(), user.as_bytes().into()), rand::random()),
            clock,
            options,
            stats,
            channels: Channels::default(),
            settings,
            run_id: (0..5).map(|_| format!("{:08x}", rand::random::<u32>())).collect(),
            port,
            next_id: 1,
            strangers: VecDeque::new(),
            handshake: Rc::default(),
            ends: BTreeSet::new(),
            buffered: 0,
            swept: 0,
            is_full: false,
            armed: None,
            timer: Rc::default(),
        }
    }

    // Clients.

    pub fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub fn connect(&mut self, client: &Rc<Client>) {
        CLIENTS.with_borrow_mut(|clients| clients.insert(client.id, client.clone()));
        if client.is_stranger() {
            self.oldest_stranger();
            self.strangers.push_back(client.id);
        }
    }

    /// Returns whether there is room for one more client. If there is none, disconnects the oldest stranger.
    pub fn has_room(&mut self) -> bool {
        if count() >= self.options.max_clients
            && let Some(stranger) = self.oldest_stranger()
        {
            self.disconnect(&stranger);
        }
        count() < self.options.max_clients
    }

    /// Returns the oldest stranger, and removes those before it that have logged in or left.
    fn oldest_stranger(&mut self) -> Option<Rc<Client>> {
        while let Some(id) = self.strangers.front() {
            if let Some(client) = find(*id).filter(|client| client.is_stranger()) {
                return Some(client);
            }
            self.strangers.pop_front();
        }
        None
    }

    /// Records that a connection has ended: its session and its wait end.
    pub fn disconnect(&mut self, client: &Rc<Client>) {
        if CLIENTS.with_borrow(|clients| !clients.contains_key(&client.id)) {
            return;
        }
        client.kill();
        self.channels.leave(client);
        self.catch_up();
        if let Some(waiter) = client.waiter.take() {
            self.forget_end(&waiter);
            self.engine.abandon(waiter.id);
        }
        self.engine.input(Input::ClientGone(ClientId(client.id)), self.clock.now());
        self.buffered -= client.counted.take();
        // The client was known until here, because the log names it.
        CLIENTS.with_borrow_mut(|clients| clients.remove(&client.id));
        self.settle(0, &[]);
    }

    /// Counts the bytes that a client takes now. If all clients together take too much, this one is killed, unless it
    /// takes little.
    pub fn count(&mut self, client: &Client, bytes: usize) {
        self.buffered = self.buffered - client.counted.replace(bytes) + bytes;
        if self.buffered > self.options.max_buffers && bytes > LITTLE && !client.is_killed.get() {
            self.stats.log(&format!("closes connection {}: too many bytes wait for their clients", client.id));
            client.kill();
        }
    }

    // Settings.

    pub fn setting(&self, which: Setting) -> i64 {
        self.settings.get(which as usize).copied().unwrap_or_default()
    }

    pub fn set(&mut self, which: Setting, value: i64) {
        if let Some(place) = self.settings.get_mut(which as usize) {
            *place = value;
        }
        let settings = self.settings;
        let value = |which: Setting| settings.get(which as usize).copied().unwrap_or_default();
        *self.engine.settings_mut() = Settings::of(value);
        self.engine.log_mut().configure(LogSettings::of(value));
    }

    pub fn limits(&self, now: Now) -> Limits {
        Limits::of(now.us(), |which| self.setting(which))
    }

    // The engine.

    /// Tells the engine what happened to keys without it. Must be called before the engine works.
    pub fn catch_up(&mut self) {
        if self.keys.has_notes() {
            let Self { engine, keys, .. } = self;
            keys.tell(engine);
        }
        if doubt::is_raised() && doubt::take(self.clock.uptime()) {
            self.engine.look_at_all_again();
        }
    }

    /// Sends what the engine has to send after a piece of work. `own` are the keys of the command that ran, of this
    /// database.
    pub fn settle(&mut self, db: i32, own: &[&[u8]]) {
        self.send(db, own);
        self.keys.are_heard = self.channels.are_heard();
        self.catch_up();
        self.arm();
    }

    fn send(&mut self, db: i32, own: &[&[u8]]) {
        for (db, key, event) in self.keys.take_events() {
            self.channels.publish(Name { db, key: &key }, event);
        }
        if let Some((index, event)) = self.engine.take_own_event() {
            return self.tell_own(db, own, index, event);
        }
        for output in self.engine.take_outputs() {
            match output {
                Output::Own(index, event) => self.tell_own(db, own, index, event),
                Output::Event(db, key, event) => self.tell(Name { db, key: &key }, event),
                // Nobody watches keys.
                Output::Modified(..) => {}
                Output::Answer(waiter, answer) => self.answer(&waiter, &answer),
            }
        }
    }

    fn tell_own(&self, db: i32, own: &[&[u8]], index: usize, event: Event) {
        if let Some(key) = own.get(index) {
            self.tell(Name { db, key }, event);
        }
    }

    fn tell(&self, name: Name<'_>, event: Event) {
        self.channels.publish(name, event.name().to_str().unwrap_or_default());
    }

    // Waiting.

    /// Makes a client wait. Its command gets no reply for now.
    pub fn wait(&mut self, waiter: Rc<Waiter>, limit_ms: u64) {
        if limit_ms > 0 {
            let ends_at = (self.clock.uptime().us() / 1000).saturating_add(limit_ms);
            waiter.ends_at.set(Some(ends_at));
            self.ends.insert((ends_at, waiter.client.id));
        }
        let client = waiter.client.clone();
        client.waiter.replace(Some(waiter));
    }

    fn forget_end(&mut self, waiter: &Waiter) {
        if let Some(ends_at) = waiter.ends_at.take() {
            self.ends.remove(&(ends_at, waiter.client.id));
        }
    }

    /// Answers a request that waited. It has left its queues.
    fn answer(&mut self, waiter: &Rc<Waiter>, answer: &Answer) {
        self.forget_end(waiter);
        let client = &waiter.client;
        client.waiter.borrow_mut().take_if(|waiting| Rc::ptr_eq(waiting, waiter));
        let mut out = client.out.borrow_mut();
        match answer {
            Answer::Granted(grant, owner) => reply::granted(&mut *out, *grant, owner.as_ref()),
            Answer::Nil => out.nil(),
            Answer::Fault(fault) => out.error(&fault.to_string()),
        }
        drop(out);
        client.flush();
        client.woken.notify_one();
    }

    /// Ends a wait with nil, or with an error. `settle` must follow, as it does after each command (`run.rs`). False: the
    /// client does not wait, for example because its request was granted in this turn, and the token was sent.
    pub fn end_wait(&mut self, client: &Rc<Client>, error: Option<&str>) -> bool {
        self.send(0, &[]);
        let Some(waiter) = client.waiter.take() else { return false };
        self.forget_end(&waiter);
        let mut out = client.out.borrow_mut();
        match error {
            None => {
                self.engine.time_out(waiter.id, self.clock.now());
                out.nil();
            }
            Some(text) => {
                self.engine.abandon(waiter.id);
                out.error(text);
            }
        }
        drop(out);
        client.flush();
        client.woken.notify_one();
        true
    }

    // Time.

    /// Returns when the timer runs.
    pub fn wakes_at(&mut self) -> Option<Instant> {
        let fresh = self.idle_for().map(|idle| Instant::now() + idle);
        self.armed = [self.armed, fresh].into_iter().flatten().min();
        self.armed
    }

    /// Does what is due at the time of the timer. The engine ticks even if the clock says that nothing is due: it may
    /// have been set back.
    pub fn timer_runs(&mut self) {
        if self.armed.take_if(|armed| *armed <= Instant::now()).is_some() {
            let Self { engine, keys, .. } = self;
            keys.tell(engine);
            engine.tick(keys, Role::Primary);
        }
        self.turn();
    }

    /// Does what is due: waits that are over, and what the engine has put off.
    pub fn turn(&mut self) {
        let uptime = self.clock.uptime().us() / 1000;
        self.catch_up();
        while let Some(end) = self.ends.first().copied().filter(|(ends_at, _)| *ends_at <= uptime) {
            match find(end.1) {
                Some(client) if self.end_wait(&client, None) => {}
                _ => _ = self.ends.remove(&end),
            }
        }
        if self.is_due() {
            let Self { engine, keys, .. } = self;
            engine.tick(keys, Role::Primary);
        }
        self.settle(0, &[]);
    }

    pub fn is_due(&self) -> bool {
        self.engine.wake_at().is_some_and(|at| at <= self.clock.now().ms())
    }

    /// Returns how long nothing is due. The engine's work is due by the clock, the ends of waits by the uptime.
    pub fn idle_for(&self) -> Option<Duration> {
        let uptime = self.clock.uptime().us();
        let end = self.ends.first().map(|(at, _)| Duration::from_micros((at * 1000).saturating_sub(uptime)));
        let wake = self.engine.wake_at().map(|at| self.clock.until(at));
        [end, wake].into_iter().flatten().min()
    }

    /// Sets the timer earlier if something is due before it.
    fn arm(&mut self) {
        let Some(idle) = self.idle_for() else { return };
        let at = Instant::now() + idle;
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            self.timer.notify_one();
        }
    }

    /// Removes some keys that have expired and that nobody asks for.
    pub fn sweep(&mut self) {
        let most = (self.keys.len() / 100).max(FEW);
        self.swept = self.keys.expire_some(self.swept, most);
        self.settle(0, &[]);
    }

    /// Moves the clocks on as if the time had passed: everything that is due meanwhile happens at its time.
    pub fn advance(&mut self, ms: u64) {
        let target = self.clock.now().us().saturating_add(ms.saturating_mul(1000));
        loop {
            let now = self.clock.now().us();
            let left = target.saturating_sub(now);
            let due = self.idle_for().map_or(u64::MAX, |idle| u64::try_from(idle.as_micros()).unwrap_or(u64::MAX));
            // The time of named sessions goes on with the timer, in small steps.
            let most = if self.engine.gauges().named_sessions > 0 { SESSION_STEP_US } else { u64::MAX };
            let step = due.max(1000).min(most).min(left);
            self.clock.advance(step);
            self.turn();
            if step == left {
                break;
            }
        }
        self.keys.expire_some(0, usize::MAX);
        self.settle(0, &[]);
        self.turn();
    }

    /// Returns the present time by the server's clock.
    pub fn now_ms(&self) -> UnixMs {
        self.clock.now().ms()
    }
}

/// Returns a client that is connected.
pub(super) fn find(id: u64) -> Option<Rc<Client>> {
    CLIENTS.with_borrow(|clients| clients.get(&id).cloned())
}

/// Returns all clients, the oldest first.
pub(super) fn clients() -> Vec<Rc<Client>> {
    CLIENTS.with_borrow(|clients| clients.values().cloned().collect())
}

/// Returns how many clients are connected.
pub(super) fn count() -> usize {
    CLIENTS.with_borrow(BTreeMap::len)
}

/// Returns a client's address, and up to `most` bytes of its name.
pub(super) fn identify(id: ClientId, most: usize) -> Option<Peer> {
    let client = find(id.0)?;
    let name = client.name.borrow();
    let name = (!name.is_empty()).then(|| name.get(..most).unwrap_or(&name).into());
    Some(Peer { addr: client.address.as_bytes().into(), name })
}

/// A client that takes no more bytes than this is not killed, even if all together take too much.
const LITTLE: usize = 128 << 10;

/// How many places of keys are looked at, at least, in one search for expired ones.
const FEW: usize = 200;

/// The longest step of `advance` while named sessions are open.
const SESSION_STEP_US: u64 = 100_000;
