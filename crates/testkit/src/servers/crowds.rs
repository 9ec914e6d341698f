//! Large locks, queues and sessions.

use crate::client::Client;
use crate::lock::lock_info;
use crate::random::{Random, seeded};
use crate::server::Server;
use crate::version::Version;

/// The number of holds of a large lock, and of locks of a large session.
pub const MANY: usize = 100_000;
/// The number of keys of a request for several locks.
pub const KEYS: usize = 64;
/// The number of clients with a request for several locks.
pub const WAITERS: usize = 1000;

/// Lets `waiters` owners hold `k0` shared and wait for `k1`, which 260 other owners hold shared. A deadlock search from
/// `k0` finds all of these 260 owners behind each of the waiters. Owners have names of `bytes` bytes.
pub fn crossing(server: &Server, waiters: usize, bytes: usize) -> Vec<Client> {
    const OTHERS: usize = 260;
    let mut client = server.client();
    client.pour((0..waiters).map(|n| format!("DLOCK.RLOCK k0 {n:0bytes$} PX 600000")));
    client.pour((0..OTHERS).map(|n| format!("DLOCK.RLOCK k1 {:0bytes$} PX 600000", n + 100_000)));
    queue(server, waiters, |n| format!("DLOCK.WLOCK k1 {n:0bytes$} BLOCK 0"))
}

/// Connects clients that send these requests and wait.
pub fn queue(server: &Server, waiters: usize, request: impl Fn(usize) -> String) -> Vec<Client> {
    let mut clients: Vec<_> = (0..waiters).map(|_| server.client()).collect();
    clients.iter_mut().enumerate().for_each(|(n, client)| client.send(request(n)));
    server.left_waiting(waiters as i64);
    clients
}

/// Sends [`MANY`] requests that each hold `k` shared. Returns their connection, and the connection of one more reader.
pub fn readers(server: &Server, request: impl Fn(usize) -> String) -> (Client, Client) {
    let (mut session, mut client) = (server.client(), server.client());
    session.pour((0..MANY).map(request));
    client.int("DLOCK.RLOCK k bound PX 600000");
    assert_eq!(lock_info(&mut client, "k").unwrap().holders, MANY as i64 + 1);
    (session, client)
}

/// Lets [`MANY`] readers hold `k` with leases that all end at the returned time. Doubles the lease until the machine is
/// fast enough to make them all.
pub fn readers_until(server: &Server) -> (Client, i64) {
    let mut client = server.client();
    for seconds in [4, 8, 16, 32] {
        client.ok("FLUSHALL");
        let end = client.now() + seconds * 1000;
        client.pour((0..MANY).map(|n| format!("DLOCK.RLOCK k reader-{n} PXAT {end}")));
        client.int("DLOCK.RLOCK k bound PX 600000");
        if lock_info(&mut client, "k").unwrap().holders == MANY as i64 + 1 {
            return (client, end);
        }
    }
    panic!("{MANY} commands take longer than half a minute");
}

/// Returns the commands that read all of a large `k`. `MEMORY USAGE` is left out where it crashes the server.
pub fn reads_of(client: &mut Client) -> &'static [&'static str] {
    const READS: [&str; 4] = ["DLOCK.INFO k", "DLOCK.INFO k FULL", "DLOCK.INFO k OWNER reader-7", "MEMORY USAGE k"];
    if Version::measures_module_values(client) { &READS } else { &READS[..3] }
}

/// Lets [`MANY`] readers hold `k`, half of whom came later than the others and have lapsed since. No command has dropped
/// these holds yet.
pub fn half_lapsed(server: &Server) -> Client {
    let mut client = server.client();
    for seconds in [3, 6, 12, 24] {
        client.ok("FLUSHALL");
        client.pour((0..MANY / 2).map(|n| format!("DLOCK.RLOCK k reader-{n} PX 600000")));
        let end = client.now() + seconds * 1000;
        client.pour((MANY / 2..MANY).map(|n| format!("DLOCK.RLOCK k reader-{n} PXAT {end}")));
        if lock_info(&mut client, "k").unwrap().holders == MANY as i64 {
            client.pass(end);
            return client;
        }
    }
    panic!("{MANY} commands take longer than half a minute");
}

/// Opens a connection whose session holds [`MANY`] locks.
pub fn session_of_many(server: &Server) -> Client {
    let mut session = server.client();
    session.pour((0..MANY).map(|n| format!("DLOCK.ACQUIRE k{n} a PX 600000 SESSION")));
    session
}

/// Opens the named session `s`, and binds [`MANY`] holds to it by these requests.
pub fn named_session_of_many(server: &Server, request: impl Fn(usize) -> String) -> Client {
    let mut client = server.client();
    client.int("DLOCK.SESSION s PX 600000 NX");
    client.pour((0..MANY).map(request));
    assert_eq!(client.int("DLOCK.SESSION s PX 600000 XX"), MANY as i64);
    client
}

/// Lets a client hold [`KEYS`] locks, `k0` and so on. Removes the limit of waiters.
pub fn several_held(server: &Server) -> Client {
    let mut client = server.client();
    client.ok("CONFIG SET dlock.max-waiters 0");
    for n in 0..KEYS {
        client.int(format!("DLOCK.ACQUIRE k{n} h PX 600000"));
    }
    client
}

/// Returns [`WAITERS`] clients, each with a request that waits for all locks of [`several_held`].
pub fn waiters_for_all(server: &Server) -> Vec<(Client, String)> {
    let mut random = seeded(19);
    let request = |n| format!("DLOCK.MACQUIRE {KEYS} {} w{n} BLOCK 0 PX 600000", shuffled(&mut random));
    let requests: Vec<_> = (0..WAITERS).map(request).collect();
    requests.into_iter().map(|request| (server.client(), request)).collect()
}

/// Sends the requests of the clients one after the other, so that the server does not handle them all in one turn.
pub fn join(server: &Server, waiters: &mut [(Client, String)]) {
    let mut watch = server.client();
    for (client, request) in &mut *waiters {
        client.send(&**request);
        watch.run("PING");
    }
    server.left_waiting(waiters.len() as i64);
}

/// Returns all keys in random order.
fn shuffled(random: &mut Random) -> String {
    let mut left: Vec<usize> = (0..KEYS).collect();
    let keys = (0..KEYS).map(|_| format!("k{}", left.swap_remove(random.below(left.len() as u64) as usize)));
    keys.collect::<Vec<_>>().join(" ")
}
