//! The arguments of `DLOCK.SACQUIRE` and of `DLOCK.RELEASE … PERMITS`: what is out of range changes nothing.

use crate::support::story::story;
use crate::support::{Client, Server, lock_info};

const INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// Checks that each request is refused with its text. Details may follow; after a syntax error they must.
#[track_caller]
fn refused(client: &mut Client, cases: &[(&str, &str)]) {
    for (request, text) in cases {
        let error = client.error(format!("DLOCK.{request}"));
        let rest = error.strip_prefix(text).unwrap_or_else(|| panic!("{request}: {error}"));
        assert!(rest.is_empty() && *text != SYNTAX || rest.starts_with(": "), "{request}: {error}");
    }
}

#[test]
fn limits_are_whole_numbers_in_range() {
    let (_server, mut client) = Server::start().with_client();
    const LIMIT: &str = "ERR limit must be between 1 and 4294967295";
    refused(
        &mut client,
        &[
            ("SACQUIRE k a 0", LIMIT),
            ("SACQUIRE k a -1", LIMIT),
            ("SACQUIRE k a 4294967296", LIMIT),
            ("SACQUIRE k a 9223372036854775807", LIMIT),
            ("SACQUIRE k a 9223372036854775808", INTEGER),
            ("SACQUIRE k a x", INTEGER),
            ("SACQUIRE k a 1.5", INTEGER),
            ("SACQUIRE k a +1", INTEGER),
            ("SACQUIRE k a 01", INTEGER),
            ("SACQUIRE k a PX 5", INTEGER),
            ("SACQUIRE k a", "ERR wrong number of arguments for 'dlock.sacquire' command"),
            ("SACQUIRE k", "ERR wrong number of arguments for 'dlock.sacquire' command"),
        ],
    );
    let empty = client.error([b"DLOCK.SACQUIRE".as_slice(), b"k", b"a", b""]);
    assert_eq!(empty, format!("{INTEGER}: limit"));
    assert_eq!(client.int("DBSIZE"), 0);
    client.int("DLOCK.SACQUIRE k a 4294967295");
}

#[test]
fn permits_are_one_up_to_the_limit() {
    let (_server, mut client) = Server::start().with_client();
    const PERMITS: &str = "ERR PERMITS must be between 1 and 4294967295";
    const OVER: &str = "ERR PERMITS can't be larger than limit";
    refused(
        &mut client,
        &[
            ("SACQUIRE k a 5 PERMITS 0", PERMITS),
            ("SACQUIRE k a 5 PERMITS -1", PERMITS),
            ("SACQUIRE k a 5 PERMITS 4294967296", PERMITS),
            ("SACQUIRE k a 5 PERMITS x", INTEGER),
            ("SACQUIRE k a 5 PERMITS 6", OVER),
            ("SACQUIRE k a 5 BLOCK 0 PERMITS 6", OVER),
            ("SACQUIRE k a 5 PERMITS", SYNTAX),
            ("SACQUIRE k a 5 PERMITS 1 PERMITS 1", SYNTAX),
            ("SACQUIRE k a 5 LIMIT 5", SYNTAX),
            ("SACQUIRE k a 5 SLOT PERMITS 1", "ERR syntax error: PERMITS and SLOT cannot be used together"),
            // Only SACQUIRE takes permits.
            ("RLOCK k a PERMITS 1", SYNTAX),
            ("ACQUIRE k a PERMITS 1", SYNTAX),
            ("MACQUIRE 1 k a PERMITS 1", SYNTAX),
            ("RENEW k a PERMITS 1", SYNTAX),
            ("RELEASE k a PERMITS 0", PERMITS),
            ("RELEASE k a PERMITS -1", PERMITS),
            ("RELEASE k a PERMITS 4294967296", PERMITS),
            ("RELEASE k a PERMITS x", INTEGER),
            ("RELEASE k a PERMITS", SYNTAX),
            ("RELEASE k a ALL PERMITS 1", SYNTAX),
            ("RELEASE k a PERMITS 1 ALL", SYNTAX),
            ("RELEASE k a PERMITS 1 PERMITS 1", SYNTAX),
            (
                "SACQUIRE k * 5 REQUEST r",
                "ERR REQUEST cannot be combined with owner '*': choose the owner name yourself",
            ),
            ("SACQUIRE k a 5 PX 10 SESSION", "ERR SESSION needs a lease of at least 300 ms"),
            ("SACQUIRE k a 5 PX 0", "ERR invalid expire time in 'dlock.sacquire' command"),
            ("SACQUIRE k a 5 BLOCK -1", "ERR timeout is negative"),
        ],
    );
    assert_eq!(client.int("DBSIZE"), 0);
    client.int("dlock.sacquire k a 5 block 0 session permits 5 px 60000 request r");
}

#[test]
fn arguments_are_checked_before_the_key() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("SET k v");
    assert!(client.error("DLOCK.SACQUIRE k a 0").starts_with("ERR limit "));
    assert!(client.error("DLOCK.SACQUIRE k a 1 PERMITS 2").starts_with("ERR PERMITS "));
    assert!(client.error("DLOCK.SACQUIRE k a 1").starts_with("WRONGTYPE "));
}

#[test]
fn a_hold_counts_up_to_the_largest_number_of_entries() {
    let (_server, mut client) = Server::start().with_client();
    const MOST: i64 = 4_294_967_295;
    let tokens = story(
        &mut client,
        "SACQUIRE k a 4294967295 PERMITS 4294967295 -> t1
         SACQUIRE k a 4294967295                    -> nil
         SACQUIRE k a 4294967295 BLOCK 0            -> ! DEADLOCK
         SACQUIRE k b 4294967295                    -> nil
         SACQUIRE k b 4294967295 PERMITS 4294967295 -> nil
         RLOCK k a                                  -> ! ERR
         INFO k                                     -> holders=1 count=4294967295 token=t1
         RLOCK k b                                  -> t2
         # The sum does not fit in 32 bits.
         INFO k                                     -> holders=2 count=4294967296
         SACQUIRE k c 4294967295                    -> nil
         RELEASE k a PERMITS 4294967295             -> 1
         INFO k                                     -> holders=1 count=1",
    );
    assert!(tokens["t1"] > 0);
    client.int("DLOCK.RELEASE k b");
    // The sum is the same after a reload, and the limit stands.
    client.int(format!("DLOCK.SACQUIRE k a {MOST} PERMITS {}", MOST - 1));
    client.ok("DEBUG RELOAD");
    client.int(format!("DLOCK.SACQUIRE k a {MOST}"));
    assert_eq!(lock_info(&mut client, "k").unwrap().count, MOST);
    assert!(client.error("DLOCK.RLOCK k a").starts_with("ERR "));
    assert_eq!(lock_info(&mut client, "k").unwrap().count, MOST);
}
