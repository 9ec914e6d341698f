//! An agent whose servers want TLS, or a login.

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server, soon};

use crate::permitted::rules;
use crate::process::{Agent, freed, servers};

#[test]
fn the_agent_of_a_quorum_needs_no_more_permissions_than_its_page_says() {
    let (servers, rules) = (servers(3), rules("`dlock agent` over a quorum"));
    for server in &servers {
        server.client().ok(format!("ACL SETUSER locks on >secret ~job:* {rules}"));
        server.client().ok("ACL SETUSER default off");
    }
    let urls: Vec<_> = servers.iter().map(|server| url("redis", "locks:secret@", server.port())).collect();
    let agent = Agent::over_urls(&urls, &[]);
    let mut client = agent.client();
    let token = client.int("DLOCK.ACQUIRE job:1 a PX 20000 SESSION");
    let mut other = agent.client();
    other.send("DLOCK.WLOCK job:1 b PX 20000 BLOCK 20000");
    assert_eq!(client.int("DLOCK.RENEW job:1 a"), 1);
    assert!(client.int(format!("DLOCK.CHECK job:1 {token}")) > 0);
    assert_eq!(client.text("PING"), "PONG");
    assert_eq!(client.int("EXISTS job:1"), 1);
    assert!(!matches!(client.run("DLOCK.INFO job:1 FULL"), Value::Nil));
    assert_eq!(client.int("DLOCK.RELEASE job:1 a"), 1);
    assert!(other.granted() > token);
    assert_eq!(other.int("DLOCK.RELEASE job:1 b"), 1);
    client.int("DLOCK.RLOCK job:1 a");
    // The error names the reason, and no password.
    let error = client.error("DLOCK.ACQUIRE secrets a");
    assert!(error.contains("NOPERM") && !error.contains("secret@"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn an_agent_speaks_tls_with_a_quorum_and_with_one_server() {
    use dlock_testkit::certified::{ANYBODY, Authority};

    let authority = Authority::new();
    let conf = format!("{ANYBODY}\nappendonly yes\nappendfsync always");
    let Some(first) = authority.server("127.0.0.1", &conf) else { return };
    let others = (0..2).map(|_| authority.server("127.0.0.1", &conf).expect("another one"));
    let (servers, ports): (Vec<Server>, Vec<u16>) = std::iter::once(first).chain(others).unzip();
    let file = authority.file("ca.pem");
    let trusted = ["--cacert", file.to_str().expect("a path")];
    let urls: Vec<_> = ports.iter().map(|port| url("rediss", "", *port)).collect();
    let agent = Agent::over_urls(&urls, &trusted);
    agent.has_majority();
    // Handshakes take long on a busy machine, and the agent gives up within a second.
    let gets_the_lock = |client: &mut Client| {
        soon("a grant", || matches!(client.outcome("DLOCK.ACQUIRE k a PX 20000"), Ok(Ok(Value::Int(_)))));
    };
    let mut client = agent.client();
    gets_the_lock(&mut client);
    assert!(servers.iter().filter(|server| !server.holders("k").is_empty()).count() >= 2);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    freed(&servers, "k");
    let agent = Agent::start(&[&["-s", &urls[0]], &trusted[..]].concat());
    gets_the_lock(&mut agent.client());
    assert_eq!(servers[0].holders("k"), ["a"]);
    // Without the authority, the agent trusts nobody.
    let stranger = Agent::start(&["-s", &urls[0]]);
    let error = stranger.client().error("DLOCK.ACQUIRE k b");
    assert!(error.starts_with("LOADING") && error.contains("certificate"), "{error}");
}

fn url(scheme: &str, login: &str, port: u16) -> String {
    format!("{scheme}://{login}127.0.0.1:{port}")
}
