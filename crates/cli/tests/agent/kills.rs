//! The agent, a client, one server and two servers are killed, each in the middle of an acquisition, a hold and a
//! release. No lock stays longer than a lease, no two clients hold it, and tokens rise.

use std::time::Duration;

use dlock_testkit::random::seeded;
use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server, Stopwatch, soon};

use crate::process::{Agent, servers};

/// The process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Agent,
    Client,
    OneServer,
    TwoServers,
}

/// The request that the kill interrupts, or the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Acquire,
    Hold,
    Release,
}

const LEASE: Duration = Duration::from_millis(2000);

/// How much longer than a lease a second client may wait for the lock after the kill: clocks drift, and servers start.
const SLACK: Duration = Duration::from_millis(2500);

struct Scene {
    servers: Vec<Server>,
    agent: Agent,
    /// The agent that nobody kills.
    other: Agent,
    last_token: i64,
    /// How many kills came before the reply to the request that they were to interrupt.
    interrupted: usize,
}

impl Scene {
    fn new() -> Self {
        let servers = servers(3);
        let (agent, other) = (Agent::over(&servers), Agent::over(&servers));
        Self { servers, agent, other, last_token: 0, interrupted: 0 }
    }

    fn play(&mut self, victim: Victim, during: During, pause: Duration) {
        let mut client = self.agent.client();
        let mut token = None;
        if during != During::Acquire {
            token = Some(acquired(&mut client, "DLOCK.ACQUIRE k a PX 2000 BLOCK 20000"));
            self.rises(token.expect("a token"));
        }
        match during {
            During::Acquire => client.send("DLOCK.ACQUIRE k a PX 2000 BLOCK 20000"),
            During::Hold => {}
            During::Release => client.send("DLOCK.RELEASE k a"),
        }
        std::thread::sleep(pause);
        let reply = client.poll(Duration::ZERO);
        self.interrupted += usize::from(during != During::Hold && reply.is_none());
        if let (During::Acquire, Some(Value::Int(granted))) = (during, &reply) {
            token = Some(*granted);
            self.rises(*granted);
        }
        let mut client = self.kill(victim, client);
        let killed = Stopwatch::start();
        let mut rival = self.other.client();
        if victim == Victim::TwoServers {
            assert!(rival.outcome("DLOCK.ACQUIRE k b PX 2000").unwrap().is_err(), "{during:?}: without a majority");
            self.servers[0].boot();
            self.servers[2].boot();
        }
        let watch = Stopwatch::start();
        // The lease is so long that it ends after the checks below, even on a busy machine.
        let next = acquired(&mut rival, "DLOCK.ACQUIRE k b PX 20000 BLOCK 20000");
        let took = watch.elapsed();
        assert!(took < LEASE + SLACK, "{victim:?} {during:?}: {took:?}");
        if let (During::Hold, Some(token), Victim::OneServer) = (during, token, victim) {
            // A majority had the hold all the time, so that nobody else got the lock before the lease ended.
            assert!(killed.elapsed() > LEASE - Duration::from_millis(400), "{token}: {:?}", killed.elapsed());
        }
        self.rises(next);
        let (late, is_free) = match (during, reply, &mut client) {
            (During::Acquire, None, Some(client)) => self.late(client, next, &mut rival),
            _ => (None, false),
        };
        if let Some(token) = token.or(late).filter(|token| *token < next && victim != Victim::Agent) {
            let mut stranger = self.agent.client();
            let still = stranger.outcome(format!("DLOCK.CHECK k {token}")).unwrap();
            assert!(!matches!(still, Ok(Value::Int(_))), "two clients hold the lock: {victim:?} {during:?}");
        }
        if !is_free {
            assert_eq!(rival.int("DLOCK.RELEASE k b"), 1, "{victim:?} {during:?}");
        }
        match victim {
            Victim::Agent => self.agent = Agent::over(&self.servers),
            Victim::OneServer => self.servers[0].boot(),
            Victim::Client | Victim::TwoServers => {}
        }
        let mut watch = self.other.client();
        soon("a majority answers", || matches!(watch.outcome("DLOCK.INFO k").unwrap(), Ok(Value::Nil)));
    }

    /// Returns the client, if it and its agent live.
    fn kill(&mut self, victim: Victim, client: Client) -> Option<Client> {
        match victim {
            Victim::Agent => self.agent.kill9(),
            Victim::Client => {
                drop(client);
                return None;
            }
            Victim::OneServer => self.servers[0].kill9(),
            Victim::TwoServers => {
                self.servers[0].kill9();
                self.servers[2].kill9();
            }
        }
        Some(client).filter(|_| victim != Victim::Agent)
    }

    /// Reads the reply to an acquisition that a kill interrupted. Returns its token, and whether the rival has released:
    /// the request may have waited for that.
    fn late(&mut self, client: &mut Client, next: i64, rival: &mut Client) -> (Option<i64>, bool) {
        let reply = client.poll(Duration::ZERO);
        let is_waiting = reply.is_none();
        if is_waiting {
            assert_eq!(rival.int("DLOCK.RELEASE k b"), 1);
        }
        let token = match reply.or_else(|| client.poll(Duration::from_secs(30))) {
            Some(Value::Int(token)) => Some(token),
            // The lock was not granted, and an error says so.
            other => {
                assert!(matches!(other, Some(Value::ServerError(_))), "{other:?}");
                None
            }
        };
        if let Some(token) = token.filter(|_| is_waiting) {
            assert!(token > next, "the rival had it first: {token}, {next}");
            self.rises(token);
        }
        (token, is_waiting)
    }

    fn rises(&mut self, token: i64) {
        assert!(token > self.last_token, "{token} after {}", self.last_token);
        self.last_token = token;
    }
}

/// Acquires, even if a majority needs a moment to be back.
#[track_caller]
fn acquired(client: &mut Client, request: &str) -> i64 {
    let mut token = 0;
    soon("a grant", || match client.outcome_within(Duration::from_secs(30), request).unwrap() {
        Ok(Value::Int(granted)) => {
            token = granted;
            true
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert!(error.starts_with("LOADING"), "{error}");
            false
        }
    });
    token
}

/// Kills the victim during each kind of request and a hold, as often as `DLOCK_AGENT_KILLS` says.
fn row(victim: Victim) {
    let rounds = std::env::var("DLOCK_AGENT_KILLS").map_or(2, |text| text.parse().expect("a number"));
    let (mut scene, mut random) = (Scene::new(), seeded(40));
    for during in [During::Acquire, During::Hold, During::Release] {
        let before = scene.interrupted;
        for _ in 0..rounds {
            let pause = match during {
                // At any point of the request, which takes some hundred µs.
                During::Acquire | During::Release => Duration::from_micros(random.below(800)),
                During::Hold => Duration::from_millis(50),
            };
            scene.play(victim, during, pause);
        }
        eprintln!("{victim:?} {during:?}: {rounds} kills, {} before the reply", scene.interrupted - before);
    }
}

#[test]
fn an_agent_that_is_killed_leaves_its_locks_to_their_leases() {
    row(Victim::Agent);
}

#[test]
fn a_client_that_is_killed_leaves_its_locks_to_their_leases() {
    row(Victim::Client);
}

#[test]
fn a_kill_of_one_server_gives_no_two_clients_the_lock() {
    row(Victim::OneServer);
}

#[test]
fn kills_of_two_servers_give_no_two_clients_the_lock() {
    row(Victim::TwoServers);
}
