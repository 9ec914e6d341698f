//! An interrupted failover: the step at which it stops is undone, ends by itself, or is finished by Sentinel.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::gate::{self, gate};
use super::load::Load;
use super::measured::print;
use super::{nothing_is_granted_twice, of, watched};
use crate::process::{Running, With, bare, outcome};
use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::skip::skipped;
use dlock_testkit::version::Version;
use dlock_testkit::{Client, Server, eventually, soon};

/// Returns whether the Sentinel of this server's version coordinates a failover itself.
fn is_coordinated(server: &Server) -> bool {
    Version::of(&mut server.client()) >= Version::Valkey(9, 0)
}

/// A `dlock failover` that has reached a step.
struct Halted {
    running: Running,
    /// The messages of `dlock` so far.
    said: String,
    /// The messages that follow.
    rest: BufReader<std::process::ChildStderr>,
}

impl Halted {
    /// Starts `dlock failover`, and reads its messages until one names this step.
    #[track_caller]
    fn at(mut command: Command, step: &str) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(command);
        let mut rest = BufReader::new(running.child().stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains(step) {
            assert!(rest.read_line(&mut said).expect("readable output") > 0, "dlock ended before {step}: {said}");
        }
        Self { running, said, rest }
    }

    /// Waits for the end of `dlock`. Returns its exit code and all of its messages.
    #[track_caller]
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.running.outcome().code;
        while self.rest.read_line(&mut self.said).expect("readable output") > 0 {}
        (code, self.said)
    }
}

/// Returns how long a write takes. While writes are paused, it waits for the end of the pause.
fn write(server: &Server) -> Duration {
    let start = Instant::now();
    server.client().ok("SET written x");
    start.elapsed()
}

#[test]
fn while_writes_are_paused_a_signal_a_timeout_or_a_kill_ends_the_failover() {
    let primary = Server::start();
    if is_coordinated(&primary) {
        return skipped("Sentinel of this server coordinates failovers itself");
    }
    // The gate holds back `INFO` as soon as writes are paused, so that `dlock` waits for the replica's offset.
    let replica = Server::start();
    let port = primary.port();
    let gate_port = gate(replica.port(), move |request| {
        let is_paused = |mut client: Client| client.calls("client|pause") > 0;
        request.contains("INFO") && Client::connect(port).is_ok_and(is_paused)
    });
    replica.client().ok(format!("CONFIG SET replica-announce-port {gate_port}"));
    replica.follow(&primary);
    let sentinels = Sentinels::watch(&primary, 1);
    sentinels.patient();
    let failover = |timeout: &str| of(&sentinels, &["failover", "--timeout", timeout]);
    // The gate is open as long as the primary's statistics have no pause.
    let open_gate = || primary.client().ok("CONFIG RESETSTAT");

    // A signal ends the failover: the pause is undone at once.
    let mut halted = Halted::at(failover("8s"), "CLIENT PAUSE 9000 WRITE");
    halted.running.signal(libc::SIGINT);
    let (code, said) = halted.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("CLIENT UNPAUSE") && said.contains("ended by SIGINT"), "{said}");
    assert!(write(&primary) < Duration::from_secs(5), "writes go on before the 9 s of the pause are over");

    // The failover is ended by its timeout.
    open_gate();
    let late = outcome(failover("1s"));
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.stderr.contains("CLIENT UNPAUSE") && late.stderr.contains("does not answer"), "{}", late.stderr);

    // `kill -9` ends the failover: the pause ends by itself.
    open_gate();
    let mut halted = Halted::at(failover("2s"), "CLIENT PAUSE 3000 WRITE");
    soon("writes are paused", || primary.client().calls("client|pause") > 0);
    halted.running.signal(libc::SIGKILL);
    halted.end();
    assert!(write(&primary) > Duration::from_millis(500), "the writes were paused");
    assert!(primary.is_primary() && replica.is_replica());
}

#[test]
fn a_primary_whose_connection_breaks_at_replicaof_stays_the_primary() {
    let primary = Server::start();
    if is_coordinated(&primary) {
        return skipped("Sentinel of this server coordinates failovers itself");
    }
    let gate_port = gate(primary.port(), |request| request.contains("REPLICAOF"));
    let replica = primary.replica();
    let sentinels = Sentinels::watch_at(gate_port, 1);
    let lost = outcome(of(&sentinels, &["failover"]));
    assert_eq!(lost.code, Some(1), "{lost:?}");
    assert!(lost.stderr.contains("no reply within 2s") && lost.stderr.contains("CLIENT UNPAUSE"), "{}", lost.stderr);
    assert!(primary.is_primary() && replica.is_replica());
    assert!(write(&primary) < Duration::from_secs(2), "writes go on before the pause is over");
}

#[test]
fn if_the_pause_ends_too_early_the_primary_keeps_what_it_has_granted() {
    let primary = Server::start();
    if is_coordinated(&primary) {
        return skipped("Sentinel of this server coordinates failovers itself");
    }
    // The gate delays `REPLICAOF` until half a second after the end of the pause of 1.1 s.
    let was_sent = Arc::new(AtomicBool::new(false));
    let is_sent = was_sent.clone();
    let late = move |request: &str| {
        if request.contains("REPLICAOF") && !request.contains("ONE") {
            is_sent.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1600));
        }
        false
    };
    // The replica does not get the grants of that half second.
    let port = primary.port();
    let lost = move |stream: &str| stream.contains("DLOCK.APPLY") && was_sent.load(Ordering::Relaxed);
    let gate_port = gate::open(port, Arc::new(late), Arc::new(lost));
    let replica = Server::start();
    replica.client().ok(format!("REPLICAOF 127.0.0.1 {gate_port}"));
    replica.wait_synced(&primary);
    let sentinels = Sentinels::watch_at(gate_port, 1);
    let load = Load::begin(&[port, replica.port()], "");
    let done = outcome(of(&sentinels, &["failover", "--timeout", "100ms"]));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("CLIENT PAUSE 1100 WRITE") && done.stderr.contains("REPLICAOF NO ONE"), "{done:?}");
    assert!(primary.is_primary() && replica.is_replica());
    load.goes_on();
    nothing_is_granted_twice(&load.end(replica.port(), port));
}

/// Returns `dlock failover` with a gate before its only Sentinel, which never gets the command to fail over.
fn without_order(sentinels: &Sentinels) -> Command {
    let gate_port = gate(sentinels.ports()[0], |request| request.contains("FAILOVER"));
    bare().with(["-s", &format!("redis-sentinel://127.0.0.1:{gate_port}/locks"), "failover"])
}

#[test]
fn if_sentinel_promotes_nobody_the_old_primary_is_the_primary_again() {
    let (servers, sentinels) = watched(1);
    if is_coordinated(&servers[0]) {
        return skipped("Sentinel of this server coordinates failovers itself");
    }
    let ports: Vec<_> = servers.iter().map(Server::port).collect();
    let load = Load::begin(&ports, "");
    let done = outcome(without_order(&sentinels));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("REPLICAOF NO ONE") && done.stderr.contains("has given up"), "{}", done.stderr);
    assert!(servers[0].is_primary() && servers[1].is_replica());
    load.goes_on();
    nothing_is_granted_twice(&load.end(ports[1], ports[0]));
}

#[test]
#[ignore = "Sentinel takes half a minute; make failovers"]
fn if_the_failover_is_killed_without_a_primary_sentinel_promotes_a_replica() {
    let (servers, sentinels) = watched(1);
    if is_coordinated(&servers[0]) {
        return skipped("Sentinel of this server coordinates failovers itself");
    }
    let ports: Vec<_> = servers.iter().map(Server::port).collect();
    let load = Load::begin(&ports, "");
    let mut halted = Halted::at(without_order(&sentinels), "SENTINEL FAILOVER");
    halted.running.signal(libc::SIGKILL);
    halted.end();
    eventually(Duration::from_secs(90), "Sentinel promotes the replica", || servers[1].is_primary());
    load.goes_on();
    let figures = load.end(ports[0], ports[1]);
    print(&servers[1], "`dlock failover`, killed when there is no primary", &figures);
    nothing_is_granted_twice(&figures);
}
