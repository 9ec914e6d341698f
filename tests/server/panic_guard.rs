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
fn a_panic_after_the_reply_adds_none() {
    let (_server, mut client) = server().with_client();
    const ERROR: &str = "-ERR internal error in dlock, see the server's log\r\n";
    for (after, reply) in [
        ("reply", "+OK\r\n".to_owned()),
        // A map of 2 pairs, the first with an array of 2: what is missing is filled up.
        ("part", format!("*4\r\n:1\r\n*2\r\n:2\r\n{ERROR}{ERROR}{ERROR}")),
        // A client that is blocked already is answered as if its wait were over.
        ("block", "$-1\r\n".to_owned()),
    ] {
        for _ in 0..3 {
            let bytes = client.exact(format!("DLOCK.PANIC k AFTER {after}"));
            assert_eq!(String::from_utf8_lossy(&bytes), reply, "{after}");
            assert_eq!(client.text("PING"), "PONG", "{after}: exactly one reply");
        }
    }
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
