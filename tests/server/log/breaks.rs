//! `RELEASE … BREAK`: the log says which client released a hold that was not its own.

use redis::Value;

use super::shown::{last, log};
use crate::support::{Client, Server, lock_info};

#[test]
fn a_break_names_the_client_that_did_it() {
    let (server, mut client) = Server::start().with_client();
    let mut holder = server.client();
    let mut operator = server.client();
    operator.ok("CLIENT SETNAME operator");
    let id = operator.id();
    for (take, options, reply, modes) in [
        ("ACQUIRE", "BREAK", 1, &["exclusive"][..]),
        ("ACQUIRE", "ALL break TOKEN t", 1, &["exclusive"]),
        ("RLOCK", "READ BREAK", 1, &["shared"]),
        ("RLOCK", "BREAK", 0, &["shared"]),
        ("WLOCK", "ALL BREAK", 1, &["shared", "exclusive"]),
    ] {
        client.ok("DLOCK.LOG RESET");
        let token = holder.int(format!("DLOCK.{take} k a PX 600000"));
        // A second entry of the reader, or the other mode of the writer.
        if reply == 0 || modes.len() == 2 {
            holder.int("DLOCK.RLOCK k a");
        }
        let release = format!("DLOCK.RELEASE k a {}", options.replace(" t", &format!(" {token}")));
        assert_eq!(operator.int(&release), reply, "{release}");
        let entries = log(&mut client);
        assert_eq!(entries.iter().map(|entry| entry.text("mode")).collect::<Vec<_>>(), modes, "{release}");
        for entry in entries {
            assert_eq!(entry.texts(["event", "key", "owner", "name"]), ["break", "k", "a", "operator"]);
            assert!(entry.int("client") == id && entry.text("addr").starts_with("127.0.0.1:"), "{entry:?}");
            assert!(entry.int("token") >= token && entry.int("held") >= 0);
        }
        client.run("DEL k");
    }
}

#[test]
fn a_break_is_logged_only_if_something_is_released_and_in_transactions_too() {
    let (server, mut client) = Server::start().with_client();
    let mut operator = server.client();
    let id = operator.id();
    operator.nil("DLOCK.RELEASE k a BREAK");
    client.int("DLOCK.ACQUIRE k a PX 600000");
    operator.nil("DLOCK.RELEASE k a BREAK TOKEN 7");
    operator.nil("DLOCK.RELEASE k b BREAK");
    assert_eq!(log(&mut client).len(), 0);
    operator.ok("MULTI");
    operator.queued("DLOCK.RELEASE k a BREAK");
    operator.run("EXEC");
    assert_eq!(last(&mut client, "break").int("client"), id);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("DLOCK.RELEASE k a");
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let script = "return redis.call('DLOCK.RELEASE', KEYS[1], 'a', 'BREAK')";
    assert_eq!(operator.int(["EVAL", script, "1", "k"]), 1);
    let entries = log(&mut client);
    assert_eq!(entries.iter().map(|entry| entry.text("event")).collect::<Vec<_>>(), ["break", "break"]);
    client.ok("CONFIG SET dlock.log-max-len 0");
    client.int("DLOCK.ACQUIRE k a PX 600000");
    assert_eq!(operator.int("DLOCK.RELEASE k a BREAK"), 1);
}

#[test]
fn a_break_is_replicated_and_saved_as_any_release() {
    let (mut server, replica) = Server::conf("appendonly yes\nappendfsync always").with_replica();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("DLOCK.RLOCK shared a PX 600000");
    client.int("DLOCK.RLOCK shared a PX 600000");
    assert_eq!(client.int("DLOCK.RELEASE k a BREAK"), 1);
    assert_eq!(client.int("DLOCK.RELEASE shared a BREAK"), 0);
    replica.wait_synced(&server);
    let looks = |client: &mut Client| (client.run("DLOCK.INFO k"), lock_info(client, "shared").map(|info| info.count));
    assert_eq!(looks(&mut replica.client()), (Value::Nil, Some(1)));
    server.crash();
    assert_eq!(looks(&mut server.client()), (Value::Nil, Some(1)));
}
