//! The module reads the files of older versions. It refuses newer locks, and passes over newer effects, with a reason.
//!
//! `tests/server/upgrade/` has what each release wrote (`scripts/golden`). The tests that run the previous release
//! itself need its module: `make upgrade` builds it from the history (`scripts/previous`) and runs them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redis::Cmd;

use crate::support::payload::{body, seal};
use crate::support::replica::info_field;
use crate::support::story::story;
use crate::support::{Client, Server, Setup, bytes_of, eventually, list_of, lock_info, req};

/// The parts of this version's files that the previous release reads, as long as no newer feature is used. Where it
/// does not, the changelog says so, and these tests demand that the previous release says that the data is too new.
const PREVIOUS_READS_OURS: PreviousReads = PreviousReads { saved: true, streamed: true, rewritten: false };

struct PreviousReads {
    /// RDB files, full synchronizations, and AOFs with an RDB preamble.
    saved: bool,
    /// The replication stream, and what is appended to an AOF.
    streamed: bool,
    /// AOFs that were rewritten without an RDB preamble.
    rewritten: bool,
}

/// Returns the words by which the previous release says that data is too new. `version` is that of the data's format.
fn too_new(version: u8) -> String {
    format!("its version {version} is not known")
}

/// Unix time in ms at which the golden files were recorded: in the year 2200, so that no lease in them is over.
const RECORDED: i64 = 7_258_118_400_000;

/// Returns the files of every release, by version.
fn golden() -> Vec<(String, PathBuf)> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/upgrade");
    let found: Vec<_> = fs::read_dir(home)
        .expect("the golden files")
        .map(|entry| entry.expect("a directory that can be read"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| (entry.file_name().into_string().expect("a version"), entry.path()))
        .collect();
    assert!(!found.is_empty(), "no golden files");
    found
}

/// Checks that the server has the holds that the commands of `commands.txt` left behind.
#[track_caller]
fn has_everything(server: &Server) {
    let mut client = server.client();
    for key in ["exclusive", "entered", "shared", "both", "partly", "renewed"] {
        let end = client.int(format!("PEXPIRETIME {key}"));
        assert!((RECORDED..RECORDED + 3_600_000).contains(&end), "{key} ends at {end}");
    }
    let shared = lock_info(&mut client, "shared FULL").expect("held");
    let counts: Vec<_> = shared.holds().iter().map(|hold| hold.count).collect();
    assert_eq!(counts, [1, 2, 1]);
    assert!(shared.token > RECORDED * 1000 && shared.ttl > 0);
    story(
        &mut client,
        "INFO exclusive FULL     -> mode=exclusive holders=1 count=1 holds=a
         INFO entered FULL       -> mode=exclusive count=3 holds=0f8fad5b-d9cb-469f-a165-70867728950e
         RACQUIRE entered 0f8fad5b-d9cb-469f-a165-70867728950e REQUEST third -> t1
         INFO entered            -> mode=exclusive count=3
         INFO shared FULL        -> mode=shared holders=3 count=4 holds=a,b,c
         INFO both FULL          -> mode=both holders=1 count=2 holds=a,a
         INFO partly             -> mode=exclusive count=1
         EXISTS released         -> 0
         INFO renewed            -> mode=exclusive count=1
         ACQUIRE exclusive b     -> nil
         ACQUIRE released b      -> t2
         RELEASE shared b        -> 0
         RELEASE shared b        -> 1
         RELEASE partly a        -> 1
         RENEW renewed a         -> 1",
    );
}

#[test]
fn an_rdb_of_every_release_is_read() {
    for (version, home) in golden() {
        let mut server = Server::start();
        server.shutdown();
        fs::copy(home.join("dump.rdb"), server.path("dump.rdb")).expect(&version);
        server.boot();
        has_everything(&server);
    }
}

#[test]
fn an_aof_of_every_release_is_read() {
    for (version, home) in golden() {
        let mut server = Server::conf("appendonly yes\naof-use-rdb-preamble no");
        server.shutdown();
        let file = server.path("appendonlydir/appendonly.aof.1.incr.aof");
        assert!(file.exists(), "the file that the server appends to");
        fs::copy(home.join("appendonly.aof"), file).expect(&version);
        server.boot();
        has_everything(&server);
    }
}

/// Returns the dump of a lock in which the version at the place `at` is `newer`, which this module does not know.
fn from_the_future(client: &mut Client, at: usize, newer: u8) -> Vec<u8> {
    client.int("DLOCK.ACQUIRE k a");
    let dump = client.bytes("DUMP k");
    let mut future = body(&dump);
    // Type (1 byte), the mark of a 64-bit length (1), the id of the module's type (8), which ends with the version of
    // the encoding, the mark of a string (1), its length (1), and the lock, which begins with the version of its format.
    assert_eq!((future[0], future[1], future[10]), (7, 0x81, 5), "{}", dump.escape_ascii());
    assert_eq!((future[ENCODING], future[FORMAT]), (1, 1), "{}", dump.escape_ascii());
    future[at] = newer;
    client.run("DEL k");
    seal(&future, &dump)
}

/// Where the two versions are in the dump of a small lock.
const ENCODING: usize = 9;
const FORMAT: usize = 12;

#[test]
fn a_newer_lock_is_refused_with_its_reason() {
    let (server, mut client) = Server::start().with_client();
    let newer_encoding = from_the_future(&mut client, ENCODING, 2);
    let newer_format = from_the_future(&mut client, FORMAT, 4);
    client.error(req!["RESTORE", "k", 0, newer_encoding]);
    server.logged("a lock could not be loaded: it was saved by a newer version of the module");
    client.error(req!["RESTORE", "k", 0, newer_format]);
    server.logged("a lock could not be loaded: format version 4 is unknown: is this module too old?");
}

#[test]
fn a_newer_effect_is_passed_over_with_its_reason() {
    let mut server = Server::conf("appendonly yes\nappendfsync always");
    server.client().int("DLOCK.ACQUIRE k a PX 600000");
    let mut effect = server.aof().into_iter().find(|command| command[0] == b"DLOCK.APPLY").expect("an effect");
    server.kill9();
    effect[1] = b"newer".to_vec();
    // The upper half of the first byte is the version of the format: 4.
    effect[2][0] = 0x40;
    let mut newer = Cmd::new();
    for word in &effect {
        newer.arg(word);
    }
    let file = server.path("appendonlydir/appendonly.aof.1.incr.aof");
    let whole = [fs::read(&file).expect("the file that the server appends to"), newer.get_packed_command()].concat();
    fs::write(&file, whole).expect("a writable directory");
    server.boot();
    server.logged("cannot apply an effect on key 'newer': ERR invalid effect: format version 4 is unknown: is this");
    let mut client = server.client();
    assert_eq!(info_field(&mut client, "stats", "unexpected_error_replies").as_deref(), Some("1"));
    story(&mut client, "EXISTS newer -> 0\n RELEASE k a -> 1");
    // The server logs a command of a file that was refused as critical.
    server.tolerate("CRITICAL");
}

#[test]
fn a_newer_rdb_is_refused_with_its_reason() {
    let (mut server, mut client) = Server::conf("rdbchecksum no").with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.ok("SAVE");
    let id = body(&client.bytes("DUMP k"))[1..10].to_vec();
    server.kill9();
    let mut file = fs::read(server.path("dump.rdb")).expect("saved");
    // The lock is at the last place of the id: the token clock, which is before the keys, has the same id. The last
    // byte of the id ends with the version of the encoding.
    let at = file.windows(9).rposition(|window| window == id).expect("the lock");
    file[at + 8] += 1;
    fs::write(server.path("dump.rdb"), file).expect("a writable directory");
    let log = server.try_boot().expect_err("the server refuses to start");
    assert!(log.contains("newer version of the module"), "{log}");
}

/// Returns the setup of a server with the previous release.
fn previous() -> Setup {
    let module = std::env::var("DLOCK_MODULE_PREVIOUS").expect("the path that scripts/previous prints");
    Setup::plain().conf(&format!("loadmodule {module}"))
}

/// For each lock, when its key expires, and its holds as (owner, mode, count, token).
type Locks = BTreeMap<Vec<u8>, (i64, Vec<(Vec<u8>, String, i64, i64)>)>;

#[track_caller]
fn locks(server: &Server) -> Locks {
    let mut client = server.client();
    let keys: Vec<_> = list_of(&client.run("KEYS *")).iter().map(bytes_of).collect();
    keys.into_iter()
        .map(|key| {
            let name = String::from_utf8(key.clone()).expect("a plain name");
            let info = lock_info(&mut client, &format!("{name} FULL COUNT 0")).expect("held");
            let holds = info.holds().iter().map(|h| (h.owner.clone(), h.mode.clone(), h.count, h.token)).collect();
            (key, (client.int(format!("PEXPIRETIME {name}")), holds))
        })
        .collect()
}

/// Takes holds of every kind that the previous release had. The session lives as long as the client.
#[track_caller]
fn variety(client: &mut Client) {
    story(
        client,
        "ACQUIRE exclusive a PX 600000  -> t1
         RACQUIRE entered a PX 600000   -> t2
         RACQUIRE entered a REQUEST r1  -> t2
         RLOCK shared a PX 600000       -> t3
         RLOCK shared b PX 700000       -> t4
         RLOCK shared b                 -> t4
         WLOCK both a PX 600000         -> t5
         RLOCK both a PX 600000         -> t6
         RACQUIRE partly a PX 600000    -> t7
         RACQUIRE partly a              -> t7
         RELEASE partly a               -> 0
         RLOCK session a PX 600000 SESSION -> t8",
    );
}

/// Changes the locks of [`variety`] by a repeat, releases, grants and a renewal.
#[track_caller]
fn more(client: &mut Client) {
    story(
        client,
        "RACQUIRE entered a REQUEST r1  -> t1
         RELEASE entered a              -> 0
         RELEASE exclusive a            -> 1
         ACQUIRE exclusive b PX 600000  -> t2
         RENEW shared a PX 650000       -> 1
         RELEASE shared b ALL           -> 1
         RLOCK later a PX 600000        -> t3",
    );
}

/// Asserts that both servers have the same locks.
#[track_caller]
fn same(what: &str, old: &Server, new: &Server) {
    assert_eq!(locks(old), locks(new), "{what}");
}

#[test]
#[ignore = "make upgrade builds the previous release and runs this"]
fn a_replica_is_upgraded_first_and_takes_over() {
    let (old, mut owner) = previous().start().with_client();
    variety(&mut owner);
    let new = old.replica();
    same("after the full synchronization", &old, &new);
    let mut waiter = old.client();
    waiter.send("DLOCK.ACQUIRE exclusive w BLOCK 60000 PX 600000");
    eventually(std::time::Duration::from_secs(10), "the request waits", || {
        lock_info(&mut old.client(), "exclusive").is_some_and(|info| info.waiters == 1)
    });
    old.client().int("DLOCK.RELEASE exclusive a");
    waiter.read().expect("granted");
    old.client().int("DLOCK.RELEASE exclusive w");
    old.client().int("DLOCK.ACQUIRE exclusive a PX 600000");
    more(&mut old.client());
    new.wait_synced(&old);
    same("by the stream", &old, &new);
    let highest = locks(&old).values().flat_map(|(_, holds)| holds.iter().map(|hold| hold.3)).max();

    old.client().run(format!("FAILOVER TO 127.0.0.1 {}", new.port()));
    eventually(std::time::Duration::from_secs(20), "the new one takes over", || new.is_primary() && old.is_replica());
    let token = new.client().int("DLOCK.ACQUIRE after a PX 600000");
    assert!(Some(token) > highest, "tokens rise over an upgrade");
    story(
        &mut new.client(),
        "RELEASE exclusive b -> 1
         RELEASE entered a   -> 1
         RENEW shared a      -> 1
         RELEASE session a   -> 1",
    );
    old_reads(&old, &new, PREVIOUS_READS_OURS.streamed, "the stream of the new primary");
}

/// Asserts that the old server has the locks of the new one or, if it cannot read them, that its log says why not.
#[track_caller]
fn old_reads(old: &Server, new: &Server, is_read: bool, what: &str) {
    if is_read {
        old.wait_synced(new);
        same(what, old, new);
    } else {
        old.logged(&too_new(2));
    }
}

#[test]
#[ignore = "make upgrade builds the previous release and runs this"]
fn a_replica_that_is_still_old_follows_a_new_primary() {
    let (new, mut owner) = Server::start().with_client();
    variety(&mut owner);
    let old = previous().start();
    old.client().ok(format!("REPLICAOF 127.0.0.1 {}", new.port()));
    old_reads(&old, &new, PREVIOUS_READS_OURS.saved, "after the full synchronization");
    more(&mut new.client());
    old_reads(&old, &new, PREVIOUS_READS_OURS.streamed, "by the stream");
}

/// Returns the ways to keep data: the configuration, the command before the end (`PING` does nothing), and whether the
/// previous release reads the data.
fn ways() -> [(&'static str, &'static str, bool); 4] {
    let PreviousReads { saved, streamed, rewritten } = PREVIOUS_READS_OURS;
    [
        ("", "SAVE", saved),
        ("appendonly yes\nappendfsync always", "PING", streamed),
        ("appendonly yes\nappendfsync always\naof-use-rdb-preamble yes", "BGREWRITEAOF", saved),
        ("appendonly yes\nappendfsync always\naof-use-rdb-preamble no", "BGREWRITEAOF", rewritten),
    ]
}

/// The locks that one module wrote and that the other has read, and the log of the second server.
struct Restart {
    before: Locks,
    after: Locks,
    log: String,
}

/// Starts a server with the module `from`, fills it, and restarts it with `to`. If that fails, the error is its log.
#[track_caller]
fn restart(from: Setup, to: &Setup, (lines, keep): (&str, &str), fill: fn(&mut Client)) -> Result<Restart, String> {
    let (mut server, mut owner) = from.conf(lines).start().with_client();
    fill(&mut owner);
    server.client().run(keep);
    server.wait_saved();
    let before = locks(&server);
    server.kill9();
    server.reconfigure(|_| to.clone().conf(lines));
    server.try_boot()?;
    let (after, log) = (locks(&server), server.log());
    // A refused effect is logged as critical.
    server.tolerate("CRITICAL");
    Ok(Restart { before, after, log })
}

fn variety_and_more(client: &mut Client) {
    variety(client);
    more(client);
}

#[test]
#[ignore = "make upgrade builds the previous release and runs this"]
fn files_of_the_previous_release_are_read() {
    for (lines, keep, _) in ways() {
        let way = (lines, keep);
        let Restart { before, after, .. } = restart(previous(), &Setup::new(), way, variety_and_more)
            .expect("the new one reads the files of the old one");
        assert_eq!(before, after, "{way:?}");
    }
}

#[test]
#[ignore = "make upgrade builds the previous release and runs this"]
fn files_of_this_version_are_read_by_the_previous_release_or_are_too_new() {
    for (lines, keep, is_read) in ways() {
        let way = (lines, keep);
        match (restart(Setup::new(), &previous(), way, variety_and_more), is_read) {
            (Ok(Restart { before, after, .. }), true) => assert_eq!(before, after, "{way:?}"),
            // A server goes on after an effect that it cannot apply. The lock is missing, and the log says why.
            (Ok(Restart { after, log, .. }), false) => {
                assert!(after.is_empty() && log.contains(&too_new(2)), "{way:?}: {after:?} {log}");
            }
            (Err(log), false) => assert!(log.contains(&too_new(2)), "{way:?}: {log}"),
            (Err(log), true) => panic!("{way:?}: {log}"),
        }
    }
}

/// Runs commands that the previous release lacks. To that release, their locks are ordinary ones.
fn newer_commands(client: &mut Client) {
    story(
        client,
        "SACQUIRE semaphore a 3 PERMITS 2 PX 600000 -> t1
         SACQUIRE semaphore b 3 PX 600000           -> t2
         MACQUIRE 2 several:1 several:2 a PX 600000 -> t3",
    );
}

/// Takes a lock that needs version 2 of the format, because it has the record of a `SACQUIRE` with a `REQUEST`.
fn newer_request(client: &mut Client) {
    story(client, "SACQUIRE semaphore a 3 PX 600000 REQUEST r1 -> t1");
}

/// Takes a lock that needs version 3 of the format, because it has a cap.
fn newer_cap(client: &mut Client) {
    story(client, "ACQUIRE capped a PX 600000 MAXHOLD 900000 -> t1");
}

/// Takes a lock that needs version 3 of the format, because its permit has a number.
fn newer_number(client: &mut Client) {
    client.run("DLOCK.SACQUIRE numbered a 3 SLOT PX 600000");
}

#[test]
#[ignore = "make upgrade builds the previous release and runs this"]
fn locks_of_newer_commands_are_read_by_the_previous_release_in_its_format() {
    for (lines, keep, _) in ways().into_iter().filter(|(.., is_read)| *is_read) {
        let way = (lines, keep);
        let Restart { before, after, .. } = restart(Setup::new(), &previous(), way, newer_commands).expect("read");
        assert_eq!((before.len(), &before), (3, &after), "{way:?}");
        for (version, fill) in [(2, newer_request as fn(&mut Client)), (3, newer_cap), (3, newer_number)] {
            let why = too_new(version);
            match restart(Setup::new(), &previous(), way, fill) {
                Ok(Restart { after, log, .. }) => {
                    assert!(after.is_empty() && log.contains(&why), "{way:?}: {after:?} {log}");
                }
                Err(log) => assert!(log.contains(&why), "{way:?}: {log}"),
            }
        }
    }
}
