//! The module loaded twice, and unloaded: refused, and nothing else changes.

use crate::support::process::module_path;
use crate::support::replica::counter;
use crate::support::{Client, Server, Setup, list_of, lock_info};

/// Shows that everything still works: a lock with a queue, a lease that ends, a session.
struct Work {
    server: Server,
    client: Client,
    session: Client,
    waiters: Vec<Client>,
    token: i64,
}

impl Work {
    #[track_caller]
    fn begin() -> Self {
        let (server, [mut client, mut session]) = Server::start().with_clients();
        client.ok("CONFIG SET dlock.default-lease 77777");
        let token = client.int("DLOCK.RACQUIRE k a PX 600000");
        // The leases of 3 s outlast the time for which a server stands still when it loads a module.
        session.int("DLOCK.ACQUIRE s a PX 3000 SESSION");
        client.int("DLOCK.ACQUIRE brief a PX 3000");
        let waiters = ["k b", "s b", "brief b"].map(|words| format!("DLOCK.ACQUIRE {words} PX 600000 BLOCK 0"));
        let waiters = server.waiters(waiters);
        Self { server, client, session, waiters, token }
    }

    #[track_caller]
    fn goes_on(mut self) {
        let client = &mut self.client;
        assert_eq!(list_of(&client.run("CONFIG GET dlock.default-lease")).len(), 2);
        assert_eq!(["waits", "sessions"].map(|name| counter(client, name)), [3, 1]);
        assert_eq!(client.int("DLOCK.RACQUIRE k a"), self.token);
        self.waiters[2].granted();
        // The session has been kept alive for more than its lease.
        let end = client.now() + 3500;
        client.pass(end);
        assert_eq!(self.server.holders("s"), ["a"]);
        self.waiters[1].waits();
        client.watch_close(self.session);
        self.waiters[1].granted();
        assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
        assert!(self.waiters[0].granted() > self.token);
        client.leaves("new", 77_777, "DLOCK.ACQUIRE new a");
        assert!(lock_info(client, "new").is_some());
    }
}

#[test]
fn a_module_that_is_loaded_is_not_loaded_again() {
    let mut work = Work::begin();
    let path = module_path();
    // The same file under another name has globals of its own.
    let copy = work.server.path("again.so");
    std::fs::copy(&path, &copy).expect("a writable directory");
    for path in [path, copy] {
        let path = path.display();
        for request in [format!("MODULE LOAD {path}"), format!("MODULE LOADEX {path} CONFIG dlock.default-lease 5")] {
            let error = work.client.error(&request);
            assert!(error.starts_with("ERR"), "{request}: {error}");
        }
    }
    work.goes_on();
}

#[test]
fn a_module_that_is_named_twice_stops_the_start() {
    let line = format!("loadmodule {}", module_path().display());
    let log = Setup::new().conf(&line).try_start().err().expect("refused");
    assert!(log.contains("Can't load module"), "{log}");
}

#[test]
fn a_module_that_may_not_be_unloaded_works_on() {
    let mut work = Work::begin();
    for _ in 0..3 {
        assert!(work.client.error("MODULE UNLOAD dlock").starts_with("ERR"));
    }
    work.goes_on();
}
