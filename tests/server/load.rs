//! The load of the module: its version, a second load, and what it warns of.

use crate::support::version::Version;
use crate::support::{Client, Setup, int_of, list_of, lock_info, text_of};

#[test]
fn the_server_knows_the_version() {
    let (_server, mut client) = Setup::new().start().with_client();
    let modules = list_of(&client.run("MODULE LIST"));
    let fields = modules.iter().map(list_of).find(|fields| text_of(&fields[1]) == "dlock").expect("it is loaded");
    let at = fields.iter().position(|field| format!("{field:?}").contains("ver")).expect("a version");
    let numbers = env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse::<i64>().expect("a number"));
    assert_eq!(int_of(&fields[at + 1]), numbers.fold(0, |version, number| version * 100 + number));
}

#[test]
fn a_second_load_says_why_the_server_ends() {
    let module = std::env::var("DLOCK_MODULE").unwrap_or_else(|_| "target/release/libdlock.so".to_owned());
    let module = std::fs::canonicalize(module).expect("a module");
    let twice = Setup::new().conf(&format!("loadmodule {}", module.display()));
    let log = twice.try_start().err().expect("a server does not start with a module twice");
    let reason = log.lines().find(|line| line.contains("loaded already")).unwrap_or_else(|| panic!("{log}"));
    assert!(reason.contains("dlock") && reason.contains("loadmodule"), "{reason}");
}

const WARNING: &str = "the user default lacks the right";

/// Returns whether this server, when it loads an AOF, leaves out the transactions that `default` may not run.
fn leaves_transactions_out(client: &mut Client) -> bool {
    let version = Version::of(client);
    version < Version::Redis(8, 6) || (version > Version::Valkey(0, 0) && version < Version::Valkey(9, 1))
}

#[test]
fn a_default_user_without_rights_is_warned_of_before_locks_are_lost() {
    let aof = "appendonly yes\nappendfsync always\nuser app on >p ~* &* +@all";
    for (rules, lacks) in [
        ("-@all +ping +config|get", true),
        ("~* &* +@all -dlock.apply", true),
        ("~* &* +@all -dlock.release", true),
        ("~other:* &* +@all", true),
        ("~* &* +@all", false),
        ("~* -@all +ping +config|get +dlock.apply +dlock.release", false),
    ] {
        let mut server = Setup::new().conf(&format!("{aof}\nuser default on nopass {rules}")).start();
        // The server itself logs what it leaves out.
        server.tolerate("CRITICAL");
        let login = |server: &crate::support::Server| {
            let mut client = server.client();
            client.ok("AUTH app p");
            client
        };
        let mut client = login(&server);
        let is_warned = lacks && leaves_transactions_out(&mut client);
        if is_warned {
            server.logged(WARNING);
        } else {
            // The turn after the load, in which the module warns, is over.
            client.text("PING");
            assert!(!server.log().contains(WARNING), "{rules}: {}", server.log());
        }
        client.int("DLOCK.MACQUIRE 2 a b o PX 600000");
        server.kill9();
        server.boot();
        let mut client = login(&server);
        let are_left = lock_info(&mut client, "a").is_some() && lock_info(&mut client, "b").is_some();
        assert!(are_left || is_warned, "{rules}: locks are lost without a warning");
        assert_eq!(server.log().matches(WARNING).count() >= 2, is_warned, "{rules}: {}", server.log());
    }
}

#[test]
fn without_an_aof_nothing_is_lost_and_nobody_is_warned() {
    let server =
        Setup::new().conf("user default on nopass -@all +ping +config|get\nuser app on nopass ~* &* +@all").start();
    let mut client = server.client();
    client.ok("AUTH app p");
    client.int("DLOCK.ACQUIRE a o PX 300 SESSION");
    client.pass_ms(400);
    assert!(!server.log().contains(WARNING));
}

#[test]
fn an_operator_that_took_slowlog_away_can_read_the_log() {
    let (server, mut admin) = Setup::new().conf("rename-command SLOWLOG \"\"").start().with_client();
    admin.run("DLOCK.LOG GET");
    assert_eq!(admin.int("DLOCK.LOG LEN"), 0);
    admin.ok("DLOCK.LOG RESET");
    admin.ok("ACL SETUSER worker on nopass ~* +@all -@admin -@dangerous -acl -config");
    let mut worker = server.client();
    worker.ok("AUTH worker x");
    for subcommand in ["GET", "LEN", "RESET"] {
        let error = worker.error(format!("DLOCK.LOG {subcommand}"));
        assert!(error.starts_with("NOPERM ") && !error.contains("SLOWLOG"), "{error}");
    }
}
