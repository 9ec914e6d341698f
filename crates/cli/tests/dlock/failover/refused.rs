//! Failovers that `dlock failover` does not begin.

use super::gate::gate_of_replies;
use super::{at, of, watched};
use crate::process::{Outcome, With, bare, outcome};
use dlock_testkit::version::Version;
use dlock_testkit::{Server, Setup};

/// Checks that a failover has ended before it sent a command that changes something.
#[track_caller]
fn is_refused(done: &Outcome, code: i32, why: &str, primary: &Server) {
    assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "{done:?}");
    assert!(done.stderr.contains(why), "{}", done.stderr);
    assert!(!done.stderr.contains("> "), "nothing was sent: {}", done.stderr);
    assert!(primary.is_primary());
    // Writes are not paused.
    primary.client().ok("SET written x");
}

/// The commands that were sent, or would be.
fn commands(text: &str) -> Vec<String> {
    let sent = text.lines().filter(|line| line.contains("> "));
    sent.map(|line| line[line.find("127.").expect("an address")..].to_owned()).collect()
}

#[test]
fn a_dry_run_prints_every_command_and_sends_none() {
    let (servers, sentinels) = watched(1);
    let dry = outcome(of(&sentinels, &["failover", "--dry-run"]));
    assert_eq!((dry.code, dry.stderr.as_str()), (Some(0), ""));
    assert!(servers[0].is_primary() && servers[1].is_replica());
    assert!(dry.stdout.contains("# wait until Sentinel has another primary\n"), "{}", dry.stdout);
    let planned = commands(&dry.stdout);
    let (old, sentinel) = (servers[0].port(), sentinels.ports()[0]);
    if Version::of(&mut servers[0].client()) >= Version::Valkey(9, 0) {
        assert_eq!(planned, [format!("127.0.0.1:{sentinel}> SENTINEL FAILOVER locks COORDINATED")]);
    } else {
        // The old primary becomes a replica of its own address, where it finds no primary: it keeps its data.
        assert_eq!(planned[1], format!("127.0.0.1:{old}> REPLICAOF 127.0.0.1 {old}"));
        assert_eq!(planned[3], format!("127.0.0.1:{sentinel}> SENTINEL FAILOVER locks"));
    }
    // A failover sends the commands that the dry run has printed.
    let done = outcome(of(&sentinels, &["failover"]));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(commands(&done.stderr), planned);
}

#[test]
fn a_replica_that_is_missing_lags_or_lacks_the_module_stops_the_failover() {
    let primary = Server::start();
    let none = "the primary has no replica that follows it and can take over";
    is_refused(&outcome(at(&primary, &["failover"])), 1, none, &primary);
    let replica = primary.replica();
    let short = ["failover", "--timeout", "500ms"];
    replica.freeze();
    let frozen = outcome(at(&primary, &short));
    replica.thaw();
    is_refused(&frozen, 1, none, &primary);
    // No server is at port 1.
    replica.client().ok("REPLICAOF 127.0.0.1 1");
    let named = format!("127.0.0.1:{}", replica.port());
    let why = format!("the primary has no replica {named} that follows it");
    is_refused(&outcome(at(&primary, &["failover", "--to", &named])), 1, &why, &primary);
    // The replica is connected through a proxy that withholds the last write of the primary.
    let way = gate_of_replies(primary.port(), |stream| stream.contains("held-back"));
    replica.client().ok(format!("REPLICAOF 127.0.0.1 {way}"));
    replica.wait_synced(&primary);
    primary.client().ok("SET held-back x");
    for arguments in [&short[..], &["failover", "--timeout", "500ms", "--dry-run"]] {
        let behind = outcome(at(&primary, arguments));
        is_refused(&behind, 1, &format!("the replica 127.0.0.1:{} is ", replica.port()), &primary);
        assert!(behind.stderr.contains(" bytes behind"), "{}", behind.stderr);
    }
    replica.client().ok("REPLICAOF 127.0.0.1 1");
    let plain = Setup::plain().replica_of(&primary);
    let lacking = outcome(at(&primary, &["failover"]));
    is_refused(&lacking, 1, &format!("the replica 127.0.0.1:{} has no dlock module", plain.port()), &primary);
    is_refused(
        &outcome(at(&plain, &["failover"])),
        64,
        &format!("name its primary 127.0.0.1:{}", primary.port()),
        &primary,
    );
    let quorum = bare().with(["-s", "redis://a", "-s", "redis://b", "--longest-lease", "1m", "failover"]);
    assert_eq!(outcome(quorum).code, Some(64));
}

#[test]
fn under_sentinel_every_replica_has_to_be_ready() {
    let (servers, sentinels) = watched(2);
    let primary = &servers[0];
    let to = format!("127.0.0.1:{}", servers[1].port());
    is_refused(&outcome(of(&sentinels, &["failover", "--to", &to])), 64, "replica-priority", primary);
    is_refused(&outcome(at(primary, &["failover"])), 64, "redis-sentinel://", primary);
    servers[2].freeze();
    let missing = outcome(of(&sentinels, &["failover"]));
    servers[2].thaw();
    is_refused(&missing, 1, &format!("127.0.0.1:{}", servers[2].port()), primary);
    let nobody = outcome(bare().with(["-s", "redis-sentinel://127.0.0.1:1/locks", "failover"]));
    assert_eq!(nobody.code, Some(69), "{nobody:?}");
}
