//! Options in any order and any case, and owners that the server makes up.

use std::collections::HashSet;

use redis::Value;

use crate::support::story::story;
use crate::support::{Client, Server, hold, int_of, list_of, lock_info, text_of};

/// Every order of these options.
fn orders(options: &[&str]) -> Vec<String> {
    match options {
        [] => vec![String::new()],
        _ => (0..options.len())
            .flat_map(|first| {
                let rest: Vec<_> = options.iter().enumerate().filter(|(at, _)| *at != first).map(|(_, o)| *o).collect();
                orders(&rest).into_iter().map(move |order| format!("{} {order}", options[first]))
            })
            .collect(),
    }
}

#[test]
fn options_come_in_any_order_and_case() {
    let (_server, mut client) = Server::start().with_client();
    let mut read = 0;
    for order in orders(&["WRITE", "ALL", "TOKEN t"]).iter().chain(&orders(&["write", "all", "Token t"])) {
        let token = client.int("DLOCK.WLOCK k a");
        client.int("DLOCK.WLOCK k a");
        if read == 0 {
            read = client.int("DLOCK.RLOCK k a");
        }
        assert_eq!(
            client.int(format!("dlock.release k a {}", order.replace(" t", &format!(" {token}")))),
            1,
            "{order}"
        );
        assert_eq!(lock_info(&mut client, "k").unwrap().mode, "shared");
    }
    for order in orders(&["PX 70000", "READ", "MINTOKEN t"]).iter().chain(&orders(&["eX 70", "reaD", "minToken t"])) {
        client.int("DLOCK.RLOCK k a PX 5000");
        read += 10;
        assert_eq!(client.int(format!("dlock.ReNew k a {}", order.replace(" t", &format!(" {read}")))), 1, "{order}");
        let hold = hold(&mut client, "k", "a", "shared").unwrap();
        assert!(hold.token == read && (60_000..=70_000).contains(&hold.ttl), "{order}: {hold:?}");
        client.int(format!("DLOCK.RENEW k a PX 5000 TOKEN {read}"));
        client.int(format!("DLOCK.RENEW k a TOKEN {read} PX 5000"));
    }
    for command in ["acquire", "RAcquire", "rLock", "WLOCK"] {
        assert!(matches!(client.run(format!("dLock.{command} {command} a pX 5000")), Value::Int(_)));
    }
    assert_eq!(lock_info(&mut client, "k owner a").unwrap().holds().len(), 1);
    assert_eq!(lock_info(&mut client, "k full Count 1").unwrap().holds().len(), 1);
}

/// The array `[owner, token]`.
#[track_caller]
fn made_up(client: &mut Client, request: &str) -> (String, i64) {
    let reply = list_of(&client.run(request));
    assert_eq!(reply.len(), 2);
    assert!(matches!(reply[1], Value::Int(_)), "{reply:?}");
    (text_of(&reply[0]), int_of(&reply[1]))
}

#[test]
fn the_server_makes_up_an_owner() {
    let server = Server::start();
    for mut client in [server.client(), server.client().resp3()] {
        let mut owners = HashSet::new();
        for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
            for n in 0..50 {
                let key = format!("{command}{n}");
                let (owner, token) = made_up(&mut client, &format!("DLOCK.{command} {key} * PX 60000"));
                assert!(is_uuid_v4(&owner), "{owner}");
                assert!(owners.insert(owner.clone()), "random");
                let info = lock_info(&mut client, &format!("{key} FULL")).unwrap();
                assert_eq!((info.token, info.holds()[0].owner.as_slice()), (token, owner.as_bytes()));
                if command != "RLOCK" {
                    client.nil(format!("DLOCK.{command} {key} *"));
                }
                assert_eq!(client.int(format!("DLOCK.RELEASE {key} {owner}")), 1);
            }
        }
        let (first, _) = made_up(&mut client, "DLOCK.RLOCK k *");
        let (second, _) = made_up(&mut client, "DLOCK.RLOCK k *");
        story(&mut client, &format!("INFO k FULL -> holders=2 holds={first},{second}\nDEL k -> 1"));
    }
}

fn is_uuid_v4(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'))
        && groups[2].starts_with('4')
        && groups[3].starts_with(['8', '9', 'a', 'b'])
}

#[test]
fn an_owner_may_have_1024_bytes() {
    let (_server, mut client) = Server::start().with_client();
    let owner = "o".repeat(1024);
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
        client.int(format!("DLOCK.{command} {command} {owner}"));
        assert_eq!(client.int(format!("DLOCK.RENEW {command} {owner}")), 1);
        assert_eq!(lock_info(&mut client, &format!("{command} OWNER {owner}")).unwrap().holds().len(), 1);
        assert_eq!(client.int(format!("DLOCK.RELEASE {command} {owner}")), 1);
    }
}
