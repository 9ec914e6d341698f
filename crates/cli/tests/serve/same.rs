//! The same commands to `dlock serve` and to a server with the module: the same bytes come back, in both versions of the
//! protocol.

use dlock_testkit::{Client, Server};

use crate::process::serve;

/// Commands of two clients: `1` and `2` say whose.
const HISTORIES: &[&[&str]] = &[
    &[
        "1 DLOCK.ACQUIRE job a PX 60000",
        "1 DLOCK.ACQUIRE job a",
        "2 DLOCK.ACQUIRE job b",
        "2 DLOCK.RELEASE job b",
        "2 DLOCK.RELEASE job a TOKEN 5",
        "1 DLOCK.RENEW job a PX 70000",
        "1 DLOCK.RENEW job b",
        "1 DLOCK.CHECK job 5",
        "1 TYPE job",
        "1 EXISTS job job nothing",
        "1 DLOCK.RELEASE job a",
        "1 DLOCK.RELEASE job a",
        "1 TYPE job",
        "1 PTTL job",
        "1 TTL job",
        "1 DLOCK.INFO job",
    ],
    &[
        "1 DLOCK.RLOCK job a PX 60000",
        "2 DLOCK.RLOCK job b PX 60000",
        "2 DLOCK.WLOCK job b",
        "2 DLOCK.RELEASE job b WRITE",
        "1 DLOCK.RELEASE job a READ",
        "2 DLOCK.WLOCK job b",
        "2 DLOCK.RELEASE job b",
        "2 DLOCK.RELEASE job b ALL",
    ],
    &[
        "1 DLOCK.SACQUIRE pool a 2 SLOT PX 60000",
        "2 DLOCK.SACQUIRE pool b 2 SLOT PX 60000",
        "2 DLOCK.SACQUIRE pool c 2 SLOT",
        "2 DLOCK.SACQUIRE pool c 0",
        "2 DLOCK.SACQUIRE pool b 1 BLOCK 0",
        "2 DLOCK.SACQUIRE pool b 2 BLOCK 1",
        "1 DLOCK.RELEASE pool a PERMITS 2",
        "1 DLOCK.RELEASE pool a",
        "1 DEL pool",
    ],
    &[
        "1 DLOCK.MACQUIRE 2 a b me PX 60000",
        "2 DLOCK.MACQUIRE 2 b c you",
        "2 DLOCK.MACQUIRE 2 b b you",
        "2 DLOCK.MACQUIRE 65 b",
        "2 DLOCK.MACQUIRE x b c",
        "1 DLOCK.RELEASE a me",
        "1 DLOCK.RELEASE b me",
    ],
    &[
        "1 DLOCK.ACQUIRE",
        "1 DLOCK.ACQUIRE a",
        "1 DLOCK.ACQUIRE a b NX",
        "1 DLOCK.ACQUIRE a b EX",
        "1 DLOCK.ACQUIRE a b EX ten",
        "1 DLOCK.ACQUIRE a b EX 0",
        "1 DLOCK.ACQUIRE a b EX 5 PX 5",
        "1 DLOCK.ACQUIRE a b PXAT 5",
        "1 DLOCK.ACQUIRE a b BLOCK -1",
        "1 DLOCK.ACQUIRE a b MAXHOLD 0",
        "1 DLOCK.ACQUIRE a b SESSIONID none",
        "1 DLOCK.ACQUIRE a b SESSION PX 100",
        "1 DLOCK.ACQUIRE a * REQUEST 1",
        "1 DLOCK.ACQUIRE a b MINTOKEN 9007199254740992",
        "1 DLOCK.RENEW a b TOKEN 1 MINTOKEN 1",
        "1 DLOCK.CHECK a 0",
        "1 DLOCK.INFO a WHAT",
        "1 DLOCK.LOG",
        "1 DLOCK.LOG NOTHING",
        "1 DLOCK.LOG GET -2",
        "1 DLOCK.LOG HELP",
        "1 DLOCK.HELP",
        "1 DLOCK.SESSION s",
        "1 DLOCK.SESSION s PX 5",
    ],
    &[
        "1 DLOCK.SESSION s XX",
        "1 DLOCK.SESSION s PX 60000 XX",
        "1 DLOCK.SESSION s PX 60000 NX",
        "1 DLOCK.SESSION s PX 60000 NX",
        "1 DLOCK.ACQUIRE job a PX 60000 SESSIONID s",
        "1 DLOCK.SESSION s LIST",
        "1 DLOCK.INFO job FULL",
        "1 DLOCK.SESSION s PX 60000",
        "1 DLOCK.SESSION s CLOSE",
        "1 DLOCK.SESSION s CLOSE",
        "1 DLOCK.SESSION LIST",
        "1 EXISTS job",
    ],
    &[
        "1 DLOCK.ACQUIRE job a PX 60000 REQUEST r",
        "1 DLOCK.ACQUIRE job a PX 60000 REQUEST r",
        "1 MULTI",
        "1 DLOCK.RACQUIRE job a",
        "1 DLOCK.ACQUIRE job b BLOCK 0",
        "1 DLOCK.RELEASE job a ALL REQUEST x",
        "1 DLOCK.RELEASE job a",
        "1 EXEC",
        "1 MULTI",
        "1 MULTI",
        "1 NOTHING",
        "1 EXEC",
        "1 EXEC",
        "1 DISCARD",
    ],
    &[
        "1 DLOCK.ACQUIRE job a PX 60000",
        "2 DLOCK.ACQUIRE job b PX 60000 BLOCK 20",
        "1 CONFIG SET dlock.max-hold x",
        "1 CONFIG SET dlock.max-hold -1",
        "1 CONFIG SET dlock.max-hold 0",
        "1 CONFIG GET dlock.max-hold",
        "1 CLIENT UNBLOCK 9999999",
        "1 CLIENT KILL ID 9999999",
        "1 CLIENT GETNAME",
        "1 CLIENT SETNAME me",
        "1 CLIENT GETNAME",
        "1 SELECT 1",
        "1 EXISTS job",
        "1 SELECT 99",
        "1 SELECT 0",
        "1 SCAN 0",
        "1 SCAN 0 MATCH j*b TYPE distrlock",
        "1 SCAN 0 MATCH x* COUNT 5",
        "1 SCAN x",
        "1 PING",
        "1 ECHO hello",
        "1 ROLE",
        "1 WAIT 0 0",
        "1 ACL WHOAMI",
        "1 FLUSHALL",
        "1 EXISTS job",
    ],
    &[
        "1 AUTH x",
        "1 AUTH default x",
        "1 AUTH nobody x",
        "1 AUTH a b c",
        "1 HELLO 2 AUTH nobody x",
        "1 CONFIG SET dlock.max-hold 5 dlock.max-hold 6",
        "1 CONFIG SET dlock.max-hold x DLOCK.Max-Hold 6",
        "1 CONFIG SET notify-keyspace-events A notify-keyspace-events K",
        "1 CONFIG SET dlock.max-hold 5 NoThing 1",
        "1 CONFIG SET dlock.max-hold 5 nothing",
        "1 CONFIG SET dlock.max-hold",
        "1 CONFIG GET dlock.max-hold",
        "1 COMMAND GETKEYS DLOCK.ACQUIRE job a BLOCK 0",
        "1 COMMAND GETKEYS dlock.info job FULL",
        "1 COMMAND GETKEYS DLOCK.MACQUIRE 2 a b me",
        "1 COMMAND GETKEYS DLOCK.MACQUIRE 9 a b me",
        "1 COMMAND GETKEYS DLOCK.MACQUIRE 0 a b me",
        "1 COMMAND GETKEYS DLOCK.MACQUIRE +2 a b me",
        "1 COMMAND GETKEYS DLOCK.MACQUIRE x a b me",
        "1 COMMAND GETKEYS DLOCK.SESSION s PX 5",
        "1 COMMAND GETKEYS DLOCK.ACQUIRE job",
        "1 COMMAND GETKEYS DEL a b",
        "1 COMMAND GETKEYS TTL a",
        "1 COMMAND GETKEYS TTL a b",
        "1 COMMAND GETKEYS CONFIG GET a",
        "1 COMMAND GETKEYS ECHO a",
        "1 COMMAND GETKEYS NOTHING a",
        "1 COMMAND GETKEYS",
    ],
];

/// Returns the replies of a server to a history, without numbers that differ between servers.
fn said(port: u16, history: &[&str], is_resp3: bool) -> Vec<String> {
    let connect = || Client::connect(port).unwrap();
    let open = || if is_resp3 { connect().resp3() } else { connect() };
    let mut clients = [open(), open()];
    clients[0].ok("FLUSHALL");
    let ask = |line: &&str| {
        let (who, line) = line.split_once(' ').unwrap();
        let bytes = clients[who.parse::<usize>().unwrap() - 1].exact(line);
        format!("{line}: {}", shown(&String::from_utf8_lossy(&bytes)))
    };
    history.iter().map(ask).collect()
}

/// Writes `#` for tokens, times, ids and what is measured.
fn shown(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split("\r\n") {
        let is_measured = line.len() > 5 && line.starts_with(':') || lines.last().is_some_and(|last| last == "held");
        lines.push(if is_measured { ":#".to_owned() } else { line.to_owned() });
    }
    lines.join("\n")
}

#[test]
fn the_replies_are_those_of_the_module() {
    let (redis, memory) = (Server::start(), serve(&[]));
    for history in HISTORIES {
        for is_resp3 in [false, true] {
            let theirs = said(redis.port(), history, is_resp3);
            let ours = said(memory.port(), history, is_resp3);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert!(same(ours, theirs), "dlock serve:\n{ours}\nthe module:\n{theirs}");
            }
        }
    }
}

/// Compares two replies. The error of `dlock serve` for an unknown command says more.
fn same(ours: &str, theirs: &str) -> bool {
    match theirs.split_once("ERR unknown command ") {
        Some((before, _)) => ours.starts_with(before) && ours.contains("ERR unknown command "),
        None => ours == theirs,
    }
}
