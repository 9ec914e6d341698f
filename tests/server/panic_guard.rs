//! A panic of the module is an error reply and a line of the log, not the end of the server.

use crate::support::{Server, Setup, lock_info, req};

fn server() -> Server {
    let mut server = Setup::new().hooks().start();
    server.tolerate("panic");
    server
}

#[test]
fn a_panic_is_an_error_and_a_log_line() {
    let (server, mut client) = server().with_client();
    client.int("DLOCK.RACQUIRE k a PX 60000");
    for _ in 0..3 {
        let error = client.error("DLOCK.PANIC k");
        assert!(error.starts_with("ERR "), "{error}");
        assert_eq!(client.text("PING"), "PONG", "exactly one reply");
    }
    assert!(server.log().lines().any(|line| line.contains("dlock") && line.contains("panic")), "{}", server.log());
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
    client.int("DLOCK.RACQUIRE k a");
    assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
}

#[test]
fn a_panic_in_a_transaction_or_script_leaves_the_rest_alone() {
    let (_server, mut client) = server().with_client();
    client.ok("MULTI");
    for request in ["DLOCK.ACQUIRE k a", "DLOCK.PANIC k", "DLOCK.RLOCK k a"] {
        client.text(request);
    }
    client.run("EXEC");
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "both");
    let script = "local bad = redis.pcall('DLOCK.PANIC', KEYS[1]) return {bad.err, redis.call('DLOCK.RELEASE', KEYS[1], 'a', 'READ')}";
    client.run(req!["EVAL", script, 1, "k"]);
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "exclusive");
    assert!(client.error(req!["EVAL", "return redis.call('DLOCK.PANIC', KEYS[1])", 1, "k"]).starts_with("ERR "));
}
