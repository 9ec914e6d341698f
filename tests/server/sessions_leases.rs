//! A hold that is bound to a connection keeps a lease of 300 ms or more that is relative, whoever renews it.

use redis::Value;

use crate::support::replica::counter;
use crate::support::state::{assert_same, state};
use crate::support::{Client, Server};

/// The lease of the bound hold, in ms.
const OWN: i64 = 600_000;

/// Returns a server, the client whose connection a hold of `a` on `k` is bound to, and another client.
fn bound() -> (Server, Client, Client) {
    let (server, [mut session, client]) = Server::conf("appendonly yes\nappendfsync no").with_clients();
    session.int(format!("DLOCK.WLOCK k a PX {OWN} SESSION"));
    (server, session, client)
}

/// Returns leases that a bound hold may not have.
fn forbidden(client: &mut Client) -> Vec<String> {
    let now = client.now();
    let mut leases: Vec<_> = ["PX 1", "PX 20", "PX 299"].map(str::to_owned).to_vec();
    leases.push(format!("PXAT {}", now + 100_000));
    leases.push(format!("EXAT {}", now / 1000 + 100));
    leases
}

/// Asserts that the request is an error for each client, changes nothing, and replicates nothing.
#[track_caller]
fn is_refused(server: &Server, clients: [&mut Client; 2], request: &str) {
    for client in clients {
        let renewals = counter(client, "renewals");
        let before = (state(client), client.session_of("k", "a", "exclusive"));
        let appended = server.appended(|| {
            let error = client.error(request);
            assert!(error.starts_with("ERR "), "{request}: {error}");
        });
        assert_same(request, &before.0, &state(client));
        assert_eq!(client.session_of("k", "a", "exclusive"), before.1, "{request}");
        assert_eq!((appended.len(), counter(client, "renewals")), (0, renewals), "{request}");
    }
}

#[test]
fn no_renewal_makes_the_lease_of_a_bound_hold_short_or_absolute() {
    let (server, mut session, mut client) = bound();
    let token = crate::support::lock_info(&mut client, "k").unwrap().token;
    for lease in forbidden(&mut client) {
        for options in ["", "WRITE", "SESSION", &format!("TOKEN {token}"), &format!("MINTOKEN {}", token + 5)] {
            // `SESSION` with an absolute lease is a syntax error for every hold.
            if options == "SESSION" && lease.contains("AT") {
                continue;
            }
            is_refused(&server, [&mut session, &mut client], &format!("DLOCK.RENEW k a {lease} {options}"));
        }
    }
    // Allowed leases can be set by both clients.
    for (lease, left) in [("PX 300", 300), ("EX 1", 1000), ("PX 600000", OWN), ("", OWN)] {
        client.leaves("k", left, format!("DLOCK.RENEW k a {lease}"));
        session.leaves("k", left, format!("DLOCK.RENEW k a {lease}"));
    }
}

#[test]
fn one_bound_hold_of_two_refuses_the_renewal_of_both() {
    let (server, mut session, mut client) = bound();
    client.int(format!("DLOCK.RLOCK k a PX {OWN}"));
    for lease in forbidden(&mut client) {
        is_refused(&server, [&mut session, &mut client], &format!("DLOCK.RENEW k a {lease}"));
    }
    // The shared hold is not bound: renewed alone, it may have any lease.
    for lease in forbidden(&mut client) {
        client.int(format!("DLOCK.RLOCK k a PX {OWN}"));
        assert_eq!(client.int(format!("DLOCK.RENEW k a READ {lease}")), 1, "{lease}");
    }
}

#[test]
fn a_hold_with_a_short_lease_of_its_own_is_not_bound_by_a_renewal() {
    let (_server, [mut session, mut client]) = Server::conf("appendonly yes\nappendfsync no").with_clients();
    for command in ["ACQUIRE", "RLOCK"] {
        // On a busy machine, the lease may end between two requests, so they are sent together.
        let take = format!("DLOCK.{command} short a PX 299");
        let replies = session.pipeline(&[&take, "DLOCK.RENEW short a SESSION"]);
        let [Ok(Value::Int(before)), Err(error)] = &replies[..] else { panic!("{command}: {replies:?}") };
        assert!(error.starts_with("ERR "), "{error}");
        client.outlive("short");
        client.nil(format!("DLOCK.CHECK short {before}"));
        assert_eq!(counter(&mut client, "sessions"), 0, "{command}");
        // A renewal that names a longer lease binds the hold.
        let longer = ["DLOCK.RENEW short a SESSION PX 300", "DLOCK.RENEW short a PX 60000"];
        let replies = session.pipeline(&[&take, longer[0], longer[1]]);
        assert_eq!(replies[1..], [Ok(Value::Int(1)), Ok(Value::Int(1))], "{command}");
        assert_eq!(counter(&mut client, "sessions"), 1);
        client.int("DLOCK.RELEASE short a");
    }
    // A hold with an absolute lease has the time left at the grant as its own lease: long enough here.
    let end = client.now() + 200_000;
    client.int(format!("DLOCK.ACQUIRE k a PXAT {end}"));
    assert_eq!(session.int("DLOCK.RENEW k a SESSION"), 1);
    client.int("DLOCK.RELEASE k a");
}

#[test]
fn a_renewal_that_finds_no_such_hold_is_nil_whatever_its_lease() {
    let (_server, mut session, mut client) = bound();
    let token = crate::support::lock_info(&mut client, "k").unwrap().token;
    for lease in forbidden(&mut client) {
        for client in [&mut session, &mut client] {
            client.nil(format!("DLOCK.RENEW k b {lease}"));
            client.nil(format!("DLOCK.RENEW k a READ {lease}"));
            client.nil(format!("DLOCK.RENEW k a TOKEN {} {lease}", token + 1));
        }
    }
}

#[test]
fn a_hold_that_is_no_longer_bound_may_have_any_lease() {
    let (_server, [mut session, mut client]) = Server::conf("dlock.session-grace 60000").with_clients();
    session.int(format!("DLOCK.WLOCK k a PX {OWN} SESSION"));
    client.watch_close(session);
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    let end = client.now() + 100_000;
    assert_eq!(client.int(format!("DLOCK.RENEW k a PXAT {end}")), 1);
    assert_eq!(client.end_of("k"), end);
    assert_eq!(client.int("DLOCK.RENEW k a PX 20"), 1);
}

#[test]
fn a_bound_hold_outlives_refused_renewals() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    let token = session.int("DLOCK.ACQUIRE k a PX 1200 SESSION");
    let end = client.now() + 4000;
    while client.now() < end {
        for lease in forbidden(&mut client) {
            assert!(client.error(format!("DLOCK.RENEW k a {lease}")).starts_with("ERR "), "{lease}");
        }
        assert!(client.int(format!("DLOCK.CHECK k {token}")) <= 1200);
    }
}
