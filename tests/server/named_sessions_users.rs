//! A named session belongs to the user that opened it: other users cannot name it, it counts for the limit of its user,
//! and it ends with its user. The limit on waiters leaves a part to other users, too.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, bytes_of, int_of, list_of, lock_info, soon};

/// Returns a client that is logged in as a user of this name, with these rights and those for named sessions.
fn user(server: &Server, admin: &mut Client, name: &str, rights: &str) -> Client {
    admin.ok(format!("ACL SETUSER {name} reset on >p ~{name}:* +@connection +dlock.session +dlock.acquire +dlock.renew +dlock.release -client|kill {rights}"));
    let mut client = server.client();
    client.ok(format!("AUTH {name} p"));
    client
}

/// Returns the sessions in the reply to a list: the user, the id and the number of holds of each.
fn sessions(client: &mut Client, request: &str) -> Vec<(String, String, i64)> {
    let text = |value: &Value| String::from_utf8(bytes_of(value)).expect("a name");
    let listed = list_of(&client.run(request));
    let listed = listed.iter().map(|session| {
        let parts = list_of(session);
        assert_eq!(parts.len(), 4, "{parts:?}");
        let left = int_of(&parts[3]);
        assert!((0..=3_600_000).contains(&left), "{left}");
        (text(&parts[0]), text(&parts[1]), int_of(&parts[2]))
    });
    listed.collect()
}

fn has_ended(client: &mut Client, id: &str) -> bool {
    client.attempt(format!("DLOCK.SESSION {id} LIST")).expect("a reply") == Value::Nil
}

#[test]
fn the_same_id_of_two_users_is_two_sessions() {
    let (server, mut admin) = Server::start().with_client();
    let [mut ann, mut bob] = ["ann", "bob"].map(|name| user(&server, &mut admin, name, ""));
    assert_eq!(ann.int("DLOCK.SESSION s PX 60000 NX"), 0);
    ann.int("DLOCK.ACQUIRE ann:k o PX 60000 SESSIONID s");
    for command in
        ["DLOCK.SESSION s PX 60000 XX", "DLOCK.ACQUIRE bob:k o SESSIONID s", "DLOCK.RENEW bob:k o SESSIONID s"]
    {
        assert!(bob.error(command).starts_with("NOSESSION "), "{command}");
    }
    bob.nil("DLOCK.SESSION s CLOSE");
    bob.nil("DLOCK.SESSION s LIST");
    assert_eq!(bob.int("DLOCK.SESSION s PX 60000 NX"), 0, "another user may open the same id");
    bob.int("DLOCK.ACQUIRE bob:k o PX 60000 SESSIONID s");
    bob.int("DLOCK.ACQUIRE bob:l o PX 60000 SESSIONID s");
    assert_eq!((ann.int("DLOCK.SESSION s PX 60000 XX"), bob.int("DLOCK.SESSION s PX 60000 XX")), (1, 2));
    assert_eq!(bob.int("DLOCK.SESSION s CLOSE"), 2);
    assert!(lock_info(&mut admin, "ann:k").is_some() && lock_info(&mut admin, "bob:k").is_none());
    assert_eq!(ann.int("DLOCK.SESSION s PX 60000 XX"), 1);
    admin.nil("DLOCK.SESSION s LIST");
}

#[test]
fn a_script_has_the_sessions_of_its_caller() {
    let (server, mut admin) = Server::start().with_client();
    let mut ann = user(&server, &mut admin, "ann", "+eval");
    ann.int("DLOCK.SESSION s PX 60000 NX");
    let beat = "return redis.call('DLOCK.SESSION','s','PX','60000','XX')";
    assert_eq!(int_of(&ann.run(["EVAL", beat, "0"])), 0);
    assert!(admin.error(["EVAL", beat, "0"]).starts_with("NOSESSION "));
    let listed = list_of(&ann.run(["EVAL", "return redis.call('DLOCK.SESSION','LIST')", "0"]));
    assert_eq!(listed.len(), 1, "{listed:?}");
}

#[test]
fn the_list_has_the_sessions_of_the_user_and_of_all_for_operators() {
    let (server, mut admin) = Server::start().with_client();
    let [mut ann, mut bob] = ["ann", "bob"].map(|name| user(&server, &mut admin, name, ""));
    let mut operator = user(&server, &mut admin, "op", "+client|kill");
    for (client, ids) in [(&mut ann, ["b", "a"]), (&mut bob, ["LIST", "s"])] {
        ids.iter().for_each(|id| assert_eq!(client.int(format!("DLOCK.SESSION {id} PX 3600000")), 0));
    }
    bob.int("DLOCK.ACQUIRE bob:k o PX 60000 SESSIONID LIST");
    let own = |user: &str, id: &str, holds| (user.to_owned(), id.to_owned(), holds);
    let of_ann = [own("ann", "a", 0), own("ann", "b", 0)];
    let of_bob = [own("bob", "LIST", 1), own("bob", "s", 0)];
    for list in ["DLOCK.SESSION LIST", "dlock.session list", "DLOCK.SESSION LIST COUNT 0", "DLOCK.SESSION LIST COUNT 4"]
    {
        assert_eq!(sessions(&mut ann, list), of_ann, "{list}");
        assert_eq!(sessions(&mut bob, list), of_bob, "{list}");
        assert_eq!(sessions(&mut operator, list), [of_ann.clone(), of_bob.clone()].concat(), "{list}");
        assert_eq!(sessions(&mut admin, list).len(), 4, "{list}");
    }
    assert_eq!(sessions(&mut operator, "DLOCK.SESSION LIST COUNT 1").len(), 1);
    // A session may be called `LIST`.
    assert_eq!(list_of(&bob.run("DLOCK.SESSION LIST LIST")).len(), 1);
    assert_eq!(bob.int("DLOCK.SESSION LIST PX 60000 XX"), 1);
    assert_eq!(bob.int("DLOCK.SESSION LIST CLOSE"), 1);
    for id in 0..150 {
        ann.int(format!("DLOCK.SESSION many{id} PX 60000"));
    }
    assert_eq!(sessions(&mut ann, "DLOCK.SESSION LIST").len(), 100);
    assert_eq!(sessions(&mut ann, "DLOCK.SESSION LIST COUNT 0").len(), 152);
}

#[test]
fn an_operator_lists_and_closes_the_sessions_of_a_user() {
    let (server, mut admin) = Server::start().with_client();
    let [mut ann, mut bob] = ["ann", "bob"].map(|name| user(&server, &mut admin, name, ""));
    let mut operator = user(&server, &mut admin, "op", "+client|kill");
    ann.int("DLOCK.SESSION s PX 60000");
    ann.int("DLOCK.ACQUIRE ann:k o PX 60000 SESSIONID s");
    for command in
        ["DLOCK.SESSION s CLOSE USER ann", "DLOCK.SESSION s LIST USER ann", "DLOCK.SESSION s LIST COUNT 1 USER nobody"]
    {
        assert!(bob.error(command).starts_with("NOPERM "), "{command}");
    }
    assert_eq!(list_of(&ann.run("DLOCK.SESSION s LIST USER ann COUNT 5")).len(), 1, "a user may name itself");
    assert_eq!(list_of(&operator.run("DLOCK.SESSION s LIST USER ann")).len(), 1);
    operator.nil("DLOCK.SESSION s LIST");
    operator.nil("DLOCK.SESSION s CLOSE");
    operator.nil("DLOCK.SESSION s CLOSE USER bob");
    operator.nil("DLOCK.SESSION s CLOSE USER nobody");
    assert_eq!(operator.int("DLOCK.SESSION s CLOSE USER ann"), 1);
    assert!(lock_info(&mut admin, "ann:k").is_none());
    assert!(ann.error("DLOCK.SESSION s PX 60000 XX").starts_with("NOSESSION "));
}

#[test]
fn one_user_leaves_a_tenth_of_the_sessions_to_others() {
    let (server, mut admin) = Server::conf("dlock.max-sessions 20").with_client();
    let [mut ann, mut bob] = ["ann", "bob"].map(|name| user(&server, &mut admin, name, ""));
    let open = |client: &mut Client, id: usize| client.attempt(format!("DLOCK.SESSION s{id} PX 60000 NX"));
    let opened = (0..20).filter(|id| open(&mut ann, *id).is_ok()).count();
    assert_eq!(opened, 18);
    let error = open(&mut ann, 20).expect_err("too many");
    assert!(
        error.starts_with("ERR max number of named sessions") && error.ends_with("dlock.max-sessions-per-user"),
        "{error}"
    );
    assert_eq!(ann.int("DLOCK.SESSION s0 PX 60000"), 0, "a user at the limit may send heartbeats");
    assert!(open(&mut bob, 0).is_ok() && open(&mut bob, 1).is_ok());
    assert!(open(&mut bob, 2).expect_err("all are open").ends_with("dlock.max-sessions"));
    ann.int("DLOCK.SESSION s0 CLOSE");
    assert!(open(&mut bob, 2).is_ok());
    // With 0, a user's limit is nine tenths, 18 here. `bob` has three of the 20 sessions, so 17 are left.
    for (limit, most) in [(1, 1), (5, 5), (0, 17)] {
        admin.ok(format!("CONFIG SET dlock.max-sessions-per-user {limit}"));
        (0..20).for_each(|id| drop(ann.attempt(format!("DLOCK.SESSION s{id} CLOSE"))));
        assert_eq!((0..20).filter(|id| open(&mut ann, *id).is_ok()).count(), most, "{limit}");
    }
    admin.ok("CONFIG SET dlock.max-sessions 0");
    assert!((100..200).all(|id| open(&mut ann, id).is_ok()));
}

#[test]
fn a_deleted_users_sessions_end() {
    end_with_their_user("ACL DELUSER ann");
}

#[test]
fn a_disabled_users_sessions_end() {
    end_with_their_user("ACL SETUSER ann off");
}

/// Asserts that the sessions of a user end, with their holds, after this command. If the user is only disabled, its
/// connections stay: then also asserts that its waiting request ends.
#[track_caller]
fn end_with_their_user(how: &str) {
    let (server, mut admin) = Server::start().with_client();
    let [mut ann, mut waiting, mut bob] = ["ann", "ann", "bob"].map(|name| user(&server, &mut admin, name, ""));
    bob.int("DLOCK.SESSION s PX 3600000");
    for id in 0..300 {
        assert_eq!(ann.int(format!("DLOCK.SESSION s{id} PX 3600000")), 0);
        ann.int(format!("DLOCK.ACQUIRE ann:{id} o PX 3600000 SESSIONID s{id}"));
    }
    server.enters_queue(&mut waiting, "DLOCK.ACQUIRE ann:0 p PX 3600000 BLOCK 0 SESSIONID s1");
    admin.run(how);
    soon("the sessions of the user end", || counter(&mut admin, "named_sessions") == 1);
    soon("the holds of the user end", || counter(&mut admin, "sessions") == 0);
    assert!(lock_info(&mut admin, "ann:0").is_none() && lock_info(&mut admin, "ann:299").is_none());
    assert_eq!(sessions(&mut admin, "DLOCK.SESSION LIST"), [("bob".to_owned(), "s".to_owned(), 0)]);
    if how.ends_with("off") {
        let error = waiting.fails();
        assert!(error.starts_with("NOSESSION ") || error.starts_with("NOPERM "), "{error}");
        let error = ann.error("DLOCK.SESSION s0 PX 60000");
        assert!(error.starts_with("NOPERM "), "a disabled user opens no session: {error}");
    }
    let mut again = user(&server, &mut admin, "ann", "");
    assert!(has_ended(&mut again, "s0"));
    assert_eq!(again.int("DLOCK.SESSION s0 PX 60000"), 0);
    // A session that the user opens later ends with the user, too.
    admin.run(how);
    soon("the later session ends", || counter(&mut admin, "named_sessions") == 1);
}

#[test]
fn rights_that_a_user_loses_end_none_of_its_sessions() {
    let (server, mut admin) = Server::start().with_client();
    let mut ann = user(&server, &mut admin, "ann", "");
    ann.int("DLOCK.SESSION s PX 60000");
    ann.int("DLOCK.ACQUIRE ann:k o PX 60000 SESSIONID s");
    admin.ok("ACL SETUSER ann resetkeys");
    for _ in 0..10 {
        admin.pass_ms(50);
        assert_eq!(ann.int("DLOCK.SESSION s PX 60000 XX"), 1);
    }
}

#[test]
fn one_user_leaves_a_tenth_of_the_places_in_queues_to_others() {
    let (server, mut admin) = Server::conf("dlock.max-waiters 200").with_client();
    admin.int("DLOCK.ACQUIRE ann:0 holder PX 600000");
    let keys: Vec<String> = (0..60).map(|number| format!("ann:{number}")).collect();
    let mut waiting = Vec::new();
    loop {
        let mut ann = user(&server, &mut admin, "ann", "+dlock.macquire");
        ann.send(format!("DLOCK.MACQUIRE 60 {} o{} BLOCK 0", keys.join(" "), waiting.len()));
        soon("the request waits or is refused", || {
            counter(&mut admin, "waits") > waiting.len() as i64 || ann.poll(std::time::Duration::ZERO).is_some()
        });
        if counter(&mut admin, "waits") == waiting.len() as i64 {
            break;
        }
        waiting.push(ann);
    }
    assert_eq!(waiting.len(), 3, "three requests of 60 places fill the 180 of 200 that a user may have");
    let mut bob = user(&server, &mut admin, "bob", "");
    admin.int("DLOCK.ACQUIRE bob:0 holder PX 600000");
    server.enters_queue(&mut bob, "DLOCK.ACQUIRE bob:0 o BLOCK 0");
    admin.int("DLOCK.RELEASE bob:0 holder");
    bob.granted();
    let mut ann = user(&server, &mut admin, "ann", "");
    assert_eq!(ann.error("DLOCK.ACQUIRE ann:0 x BLOCK 0"), "ERR max number of waiters reached: dlock.max-waiters");
    drop(waiting);
    soon("places are free again", || counter(&mut admin, "waiters") == 0);
    server.enters_queue(&mut ann, "DLOCK.ACQUIRE ann:0 x BLOCK 0");
}
