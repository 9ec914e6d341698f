//! The changes that `WATCH` and `CLIENT TRACKING` hear of.

use dlock_core::Want;
use dlock_core::engine::Entered;

use crate::{Server, is_granted};

#[test]
fn grants_signal_the_key_to_watch_and_waits_do_not() {
    let mut server = Server::new();
    assert!(is_granted(&server.acquire("lock", 1, 20, Want::Exclusive)));
    assert_eq!(std::mem::take(&mut server.space.modified).len(), 1, "a grant");
    assert!(is_granted(&server.acquire("lock", 1, 20, Want::Exclusive)));
    assert_eq!(std::mem::take(&mut server.space.modified).len(), 1, "another entry");
    assert!(matches!(server.acquire("lock", 2, 20, Want::Exclusive), Ok(Entered::Waiting(_))));
    assert!(server.space.modified.is_empty(), "a request that waits changes nothing in the key");
}
