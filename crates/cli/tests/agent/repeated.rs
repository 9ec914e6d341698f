//! Commands that are sent twice (`REQUEST`).

use std::time::Duration;

use crate::process::{queued, trio};

#[test]
fn a_repeat_gets_the_answer_of_the_first() {
    let (_servers, agent, mut client) = trio();
    let token = client.int("DLOCK.ACQUIRE k a REQUEST 1");
    assert_eq!(client.int("DLOCK.ACQUIRE k a REQUEST 1"), token);
    assert_eq!(client.int("DLOCK.ACQUIRE k a REQUEST 1 BLOCK 100"), token);
    client.nil("DLOCK.ACQUIRE k a REQUEST 2");
    client.nil("DLOCK.ACQUIRE k b REQUEST 1");
    let mut holder = agent.client();
    assert_eq!(holder.int("DLOCK.ACQUIRE k a REQUEST 1 SESSION"), token);
    drop(holder);
    // The repeat has bound the hold to its connection.
    assert!(client.int("DLOCK.ACQUIRE k b BLOCK 20000") > token);
}

#[test]
fn the_repeat_of_a_waiting_request_takes_its_place() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut first = agent.client();
    first.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    queued(&servers, 1, "k");
    let mut behind = agent.client();
    behind.send("DLOCK.ACQUIRE k c BLOCK 0");
    queued(&servers, 2, "k");
    let mut repeat = agent.client();
    repeat.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    first.gives_up();
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    repeat.granted();
    assert!(behind.poll(Duration::from_millis(100)).is_none());
    assert_eq!(repeat.int("DLOCK.RELEASE k b"), 1);
    behind.granted();
}

#[test]
fn a_repeat_that_does_not_wait_leaves_the_first_its_place() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut first = agent.client();
    first.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    queued(&servers, 1, "k");
    client.nil("DLOCK.ACQUIRE k b REQUEST 1");
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    first.granted();
}

#[test]
fn a_repeat_waits_no_longer_than_it_says() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut first = agent.client();
    first.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    queued(&servers, 1, "k");
    let mut repeat = agent.client();
    repeat.nil("DLOCK.ACQUIRE k b BLOCK 200 REQUEST 1");
    first.gives_up();
    queued(&servers, 0, "k");
}

#[test]
fn a_repeat_waits_for_as_long_as_it_says() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    for block in ["0", "40000"] {
        let mut first = agent.client();
        first.send("DLOCK.ACQUIRE k b BLOCK 1500 REQUEST 1");
        queued(&servers, 1, "k");
        let mut repeat = agent.client();
        repeat.send(format!("DLOCK.ACQUIRE k b BLOCK {block} REQUEST 1"));
        first.gives_up();
        assert!(repeat.poll(Duration::from_secs(3)).is_none(), "it has waited for the time of the first only");
        assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
        repeat.granted();
        repeat.send("DLOCK.ACQUIRE k a BLOCK 0");
        assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
        repeat.granted();
    }
}

#[test]
fn a_repeat_is_held_for_as_long_as_it_says() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut first = agent.client();
    first.send("DLOCK.ACQUIRE k b PX 2000 BLOCK 0 REQUEST 1");
    queued(&servers, 1, "k");
    let mut repeat = agent.client();
    repeat.send("DLOCK.ACQUIRE k b PX 25000 BLOCK 0 REQUEST 1");
    first.gives_up();
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    let token = repeat.granted();
    let left = client.int(format!("DLOCK.CHECK k {token}"));
    assert!(left > 10_000, "{left} ms are left");
}

#[test]
fn another_command_with_the_same_id_is_no_repeat() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.ACQUIRE k a");
    let mut reader = agent.client();
    reader.send("DLOCK.RLOCK k b BLOCK 0 REQUEST 1");
    queued(&servers, 1, "k");
    let mut writer = agent.client();
    writer.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    queued(&servers, 2, "k");
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    reader.granted();
    drop(writer);
    queued(&servers, 0, "k");
    client.int("DLOCK.RLOCK k c");
    let error = client.error("DLOCK.WLOCK k b REQUEST 1");
    assert!(error.contains("another entry"), "{error}");
}
