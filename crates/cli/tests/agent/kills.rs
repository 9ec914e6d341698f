//! The agent, a client, one server and two servers are killed, each in the middle of an acquisition, a hold and a
//! release. Nothing stays locked longer than a lease, nobody is in twice, tokens rise.

use std::time::Duration;

use dlock_testkit::random::seeded;
use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server, Stopwatch, soon};

use crate::process::{Agent, servers};

/// The one that gets killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Agent,
    Client,
    OneServer,
    TwoServers,
}

/// During what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Acquire,
    Hold,
    Release,
}

const LEASE: Duration = Duration::from_millis(2000);

/// Another client acquires the lock after everything is as it was: at most a lease and what the drift adds later than
/// the kill, plus what servers need to start.
const SLACK: Duration = Duration::from_millis(2500);

struct Scene {
    servers: Vec<Server>,
    agent: Agent,
    /// Another agent, which nobody kills.
    other: Agent,
    last_token: i64,
}

impl Scene {
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
        match victim {
            Victim::Agent => self.agent.kill9(),
            Victim::Client => drop(client),
            Victim::OneServer => self.servers[0].kill9(),
            Victim::TwoServers => {
                self.servers[0].kill9();
                self.servers[2].kill9();
            }
        }
        let killed = Stopwatch::start();
        // Of those that live. One that is held, as a server says, is held by that token alone.
        let mut rival = self.other.client();
        match victim {
            Victim::TwoServers => {
                assert!(rival.outcome("DLOCK.ACQUIRE k b PX 2000").unwrap().is_err(), "{during:?}: without a majority");
                self.servers[0].boot();
                self.servers[2].boot();
            }
            Victim::OneServer | Victim::Agent | Victim::Client => {}
        }
        let watch = Stopwatch::start();
        let next = acquired(&mut rival, "DLOCK.ACQUIRE k b PX 2000 BLOCK 20000");
        let took = watch.elapsed();
        assert!(took < LEASE + SLACK, "{victim:?} {during:?}: {took:?}");
        if let (During::Hold, Some(token), Victim::OneServer) = (during, token, victim) {
            // A majority had it all the time, so nobody else before the lease.
            assert!(killed.elapsed() > LEASE - Duration::from_millis(400), "{token}: {:?}", killed.elapsed());
        }
        self.rises(next);
        if let Some(token) = token.filter(|_| victim != Victim::Agent) {
            let mut stranger = self.agent.client();
            let still = stranger.outcome(format!("DLOCK.CHECK k {token}")).unwrap();
            assert!(!matches!(still, Ok(Value::Int(_))), "two hold it: {victim:?} {during:?}");
        }
        assert_eq!(rival.int("DLOCK.RELEASE k b"), 1, "{victim:?} {during:?}");
        match victim {
            Victim::Agent => self.agent = Agent::over(&self.servers),
            Victim::OneServer => self.servers[0].boot(),
            Victim::Client | Victim::TwoServers => {}
        }
        let mut watch = self.other.client();
        soon("a majority answers", || matches!(watch.outcome("DLOCK.INFO k").unwrap(), Ok(Value::Nil)));
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

#[test]
fn whatever_is_killed_nobody_is_in_twice_and_nothing_stays_locked() {
    let servers = servers(3);
    let (agent, other) = (Agent::over(&servers), Agent::over(&servers));
    let mut scene = Scene { servers, agent, other, last_token: 0 };
    let mut random = seeded(40);
    for victim in [Victim::Agent, Victim::Client, Victim::OneServer, Victim::TwoServers] {
        for during in [During::Acquire, During::Hold, During::Release] {
            let pause = match during {
                // Anywhere on the way.
                During::Acquire | During::Release => Duration::from_micros(random.below(3000)),
                During::Hold => Duration::from_millis(50),
            };
            scene.play(victim, during, pause);
        }
    }
}
