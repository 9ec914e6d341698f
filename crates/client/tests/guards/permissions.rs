//! The permissions of docs/permissions.md suffice.

use std::path::Path;
use std::time::Duration;

use dlock_client::{Client, Error};
use dlock_testkit::{Server, soon};

use crate::in_time;

const LONG: Duration = Duration::from_secs(20);

/// Returns the words of a text that begin like a rule.
fn rules(text: &str) -> Vec<String> {
    let words = text.split([' ', '`', '\n']).filter(|word| word.starts_with(['+', '&']));
    words.map(|word| word.replace("\\|", "|")).collect()
}

/// The rules of the page: those of every user of locks, and the two cells of this package.
fn page() -> [Vec<String>; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/permissions.md");
    let page = std::fs::read_to_string(path).expect("docs/permissions.md");
    let users: String = page.split("> ACL SETUSER worker ").skip(1).filter_map(|rest| rest.lines().next()).collect();
    let row = page.lines().find_map(|line| line.strip_prefix("| Rust | ")).expect("a row");
    let (locks, watch) = row.split_once(" | ").expect("two cells");
    [rules(&users.replace('+', " +")), rules(locks), rules(watch)]
}

/// A server with a replica and the users `locker` and `watcher`, and a client of each.
fn users() -> ([Server; 2], [Client; 2]) {
    let (server, replica) = Server::start().with_replica();
    let mut admin = server.client();
    soon("the replica acknowledges", || {
        admin.ok("SET x 1");
        admin.int("WAIT 1 1000") == 1
    });
    let [users, locks, watch] = page();
    // The page says this below the table.
    let locker = [users, locks, vec!["+wait".to_owned()]].concat();
    let watcher = [locker.clone(), watch].concat();
    let clients = [("locker", locker), ("watcher", watcher)].map(|(name, rules)| {
        admin.ok(format!("ACL SETUSER {name} reset on >secret ~job:* {}", rules.join(" ")));
        Client::open(&format!("redis://{name}:secret@127.0.0.1:{}", server.port())).expect("a client")
    });
    ([server, replica], clients)
}

/// Fails if something was refused. The crate `redis` sends its name and version, and goes on if that is denied.
fn nothing_was_denied(server: &Server) {
    let log = format!("{:?}", server.client().run("ACL LOG"));
    let denied = log.match_indices("object").count() - log.match_indices("\"client|setinfo\"").count();
    assert_eq!(denied, 0, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_permissions_suffice_for_locks() {
    let ([server, _replica], [client, _]) = users();
    for session in [false, true] {
        let with = |acquire: dlock_client::Acquire| if session { acquire.session() } else { acquire };
        let held = in_time(with(client.acquire("job:1"))).await.expect("a lock");
        let waiting = tokio::spawn(with(client.acquire("job:1").wait(LONG)).into_future());
        server.left_waiting(1);
        held.renew().await.expect("still held");
        held.release().await.expect("still held");
        in_time(waiting).await.expect("a task").expect("a lock").release().await.expect("still held");
        let reader = in_time(with(client.read("job:2"))).await.expect("a lock");
        let writer = in_time(reader.upgrade().expect("an upgrade")).await.expect("a lock");
        writer.release().await.expect("still held");
        reader.release().await.expect("still held");
        in_time(with(client.write("job:2"))).await.expect("a lock").release().await.expect("still held");
        let permit = in_time(with(client.semaphore("job:3", 2).acquire())).await.expect("a permit");
        permit.release().await.expect("still held");
        let both = in_time(with(client.acquire_all(["job:4", "job:5"]))).await.expect("locks");
        both.release().await.expect("still held");
        let copied = in_time(with(client.acquire("job:6").replicas(1, LONG))).await.expect("a lock");
        copied.release().await.expect("still held");
    }
    nothing_was_denied(&server);
    let elsewhere = in_time(client.try_acquire("other")).await;
    assert!(matches!(elsewhere, Err(Error::Refused(_))), "{elsewhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_permissions_suffice_for_a_watch() {
    let ([server, _replica], [locker, watcher]) = users();
    let mut watch = watcher.watch("job:1").expect("one server");
    assert_eq!(in_time(watch.next()).await.expect("more").expect("holders"), []);
    let held = in_time(watcher.acquire("job:1")).await.expect("a lock");
    let holders = in_time(watch.next()).await.expect("more").expect("holders");
    assert_eq!(holders[0].token, held.token());
    held.release().await.expect("still held");
    assert!(watcher.info("job:1").await.expect("a reply").is_none());
    assert_eq!(in_time(watch.next()).await.expect("more").expect("holders"), []);
    nothing_was_denied(&server);
    // The other user lacks a permission.
    let mut refused = locker.watch("job:1").expect("one server");
    let said = in_time(refused.next()).await;
    assert!(matches!(said, Some(Err(Error::Refused(_)))), "{said:?}");
}
