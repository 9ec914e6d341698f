//! A callback of another module deletes a lock while this module opens the expired key of another lock.

use crate::support::Setup;
use crate::support::replica::counter;

#[test]
fn a_lock_that_is_deleted_when_another_expires_serves_its_queue() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for request in ["ACQUIRE k1 c", "MACQUIRE 2 k0 k1 c", "RELEASE k1 a", "RENEW k1 a"] {
        client.int("DLOCK.ACQUIRE k2 a PX 600000");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k2 b BLOCK 0");
        let token = client.int("DLOCK.ACQUIRE k1 a PX 5");
        client.pass(token / 1000 + 10);
        client.ok("DLOCK.MEDDLE k2");
        // To open k1 removes it, and the server calls the other module before it goes on.
        let expired = counter(&mut client, "lapses");
        let _ = client.attempt(format!("DLOCK.{request}"));
        waiter.granted();
        assert_eq!(server.holders("k2"), ["b"], "{request}");
        assert_eq!(counter(&mut client, "lapses"), expired + 1, "{request}");
        client.int("DEL k0 k1 k2");
    }
}
