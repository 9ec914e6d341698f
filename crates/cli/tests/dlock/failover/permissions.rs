//! The permissions that docs/permissions.md lists suffice for `dlock failover`.

use super::{promoted, watched};
use crate::process::{With, bare, outcome};
use dlock_testkit::cluster_replicas::ReplicatedCluster;
use dlock_testkit::sentinel::Sentinels;
use dlock_testkit::{Client, Server};

/// The rules of the page for `dlock failover`: those of every failover, those with Sentinel, in a cluster and with
/// neither, and those on the Sentinels themselves.
fn rules() -> [String; 5] {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/permissions.md");
    // A table has `|` as `\|`.
    let page = std::fs::read_to_string(path).expect("docs/permissions.md").replace("\\|", "|");
    let row = page.lines().find(|line| line.starts_with("| `dlock failover` |")).expect("a row");
    let sentinel = page.split_once("for `dlock failover`, `").expect("the rules at Sentinel").1;
    let mut rules: Vec<_> = row.split('`').filter(|text| text.starts_with('+')).map(str::to_owned).collect();
    rules.push(sentinel.split_once('`').expect("their end").0.replace('\n', " "));
    rules.try_into().expect("five sets of rules")
}

/// Makes the user `operator` with these rules.
fn admit(client: &mut Client, rules: &[&String]) {
    let rules: Vec<_> = rules.iter().flat_map(|rules| rules.split_whitespace()).collect();
    client.ok(format!("ACL SETUSER operator on >secret {}", rules.join(" ")));
}

/// The URL of a server, with the login of `operator`.
fn url(server: &Server) -> String {
    format!("redis://operator:secret@127.0.0.1:{}", server.port())
}

#[test]
fn the_permissions_on_the_page_suffice() {
    let [all, with_sentinel, in_a_cluster, otherwise, at_sentinel] = rules();
    let (servers, sentinels) = watched(1);
    servers.iter().for_each(|server| admit(&mut server.client(), &[&all, &with_sentinel]));
    for port in sentinels.ports() {
        admit(&mut Client::connect(port).expect("a sentinel"), &[&at_sentinel]);
    }
    let url_of =
        |sentinels: &Sentinels| format!("redis-sentinel://operator:secret@127.0.0.1:{}/locks", sentinels.ports()[0]);
    let arguments = ["--sentinel-user", "operator", "--sentinel-password", "secret", "failover"];
    let done = outcome(bare().with(["-s", &url_of(&sentinels)]).with(arguments));
    assert_eq!(promoted(&done, &servers.iter().collect::<Vec<_>>()), 1);
    assert!(!done.stderr.contains("NOPERM"), "{}", done.stderr);

    let (one, two) = Server::start().with_replica();
    for server in [&one, &two] {
        admit(&mut server.client(), &[&all, &otherwise]);
    }
    assert_eq!(promoted(&outcome(bare().with(["-s", &url(&one), "failover"])), &[&one, &two]), 1);

    let whole = ReplicatedCluster::start(3);
    whole.servers().for_each(|server| admit(&mut server.client(), &[&all, &in_a_cluster]));
    let done = outcome(bare().with(["-s", &url(&whole.replicas[0]), "failover"]));
    assert_eq!(promoted(&done, &[&whole.primaries.nodes[0], &whole.replicas[0]]), 1);
}
