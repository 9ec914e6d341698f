//! Locks in transactions, scripts and functions.

use redis::Value;

use crate::support::{Client, Server, int_of, list_of, lock_info, req};

/// How long the reply to `DLOCK.INFO` is in RESP2: six fields, each with its name.
const INFO: usize = 12;

#[test]
fn transactions_run_lock_commands_in_order() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("MULTI");
    for request in [
        "DLOCK.ACQUIRE k a",
        "DLOCK.ACQUIRE k b",
        "DLOCK.INFO k",
        "DLOCK.RELEASE k a",
        "DLOCK.ACQUIRE k b",
        "DLOCK.INFO k",
        "DLOCK.RLOCK k *",
    ] {
        assert_eq!(client.text(request), "QUEUED");
    }
    let replies = list_of(&client.run("EXEC"));
    let (first, second) = (int_of(&replies[0]), int_of(&replies[4]));
    assert!(second > first);
    assert_eq!((&replies[1], &replies[3], &replies[6]), (&Value::Nil, &Value::Int(1), &Value::Nil));
    assert_eq!(lock_info(&mut client, "k FULL").unwrap().holds()[0].owner, b"b");
    client.ok("MULTI");
    client.text("DLOCK.RELEASE k b");
    client.ok("DISCARD");
    assert!(lock_info(&mut client, "k").is_some());
}

/// Calls one lock command from Lua and returns what the script returns.
#[track_caller]
fn call(client: &mut Client, eval: &str, words: &str) -> Result<Value, String> {
    let mut words = words.split(' ');
    let (command, key) = (words.next().unwrap(), words.next().unwrap());
    let mut request = req![eval, "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))", 1, key, command];
    words.for_each(|word| {
        request.arg(word);
    });
    client.attempt(request)
}

#[test]
fn scripts_get_the_same_replies_and_errors() {
    let (_server, mut client) = Server::start().with_client();
    let mut lua = |words: &str| call(&mut client, "EVAL", words);
    let token = int_of(&lua("DLOCK.RACQUIRE k a PX 60000").unwrap());
    assert_eq!(lua("DLOCK.RACQUIRE k a"), Ok(Value::Int(token)));
    assert_eq!(lua("DLOCK.ACQUIRE k b"), Ok(Value::Nil));
    assert_eq!(lua("DLOCK.RELEASE k a"), Ok(Value::Int(0)));
    assert_eq!(lua("DLOCK.RENEW k a PX 50000"), Ok(Value::Int(1)));
    assert!(matches!(lua(&format!("DLOCK.CHECK k {token}")), Ok(Value::Int(1..=50_000))));
    assert_eq!(list_of(&lua("DLOCK.INFO k").unwrap()).len(), INFO);
    assert_eq!(lua("DLOCK.INFO none"), Ok(Value::Nil));
    assert_eq!(list_of(&lua("DLOCK.RLOCK star *").unwrap()).len(), 2);
    assert!(int_of(&lua("DLOCK.RLOCK k a").unwrap()) > token);
    assert!(lua("DLOCK.RELEASE k a").unwrap_err().starts_with("AMBIGUOUS"));
    assert!(
        lua("DLOCK.ACQUIRE k a PX 0").unwrap_err().starts_with("ERR invalid expire time in 'dlock.acquire' command")
    );
    assert_eq!(lua("DLOCK.RELEASE k a ALL"), Ok(Value::Int(1)));
    // A null is false in Lua, and a script can act on it.
    let script = "if not redis.call('DLOCK.ACQUIRE', KEYS[1], 'a') then return 'busy' end
        if redis.call('DLOCK.ACQUIRE', KEYS[1], 'b') == false then return 'held' end";
    assert_eq!(client.text(req!["EVAL", script, 1, "k"]), "held");
    assert_eq!(client.text(req!["EVAL", script, 1, "k"]), "busy");
}

#[test]
fn read_only_scripts_may_look_but_not_lock() {
    let (_server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE k a");
    assert_eq!(list_of(&call(&mut client, "EVAL_RO", "DLOCK.INFO k").unwrap()).len(), INFO);
    assert!(matches!(call(&mut client, "EVAL_RO", &format!("DLOCK.CHECK k {token}")), Ok(Value::Int(1..))));
    for words in ["DLOCK.ACQUIRE new a", "DLOCK.RELEASE k a", "DLOCK.RENEW k a"] {
        call(&mut client, "EVAL_RO", words).unwrap_err();
    }
    assert_eq!(client.int("EXISTS new"), 0);
}

#[test]
fn functions_lock_too() {
    let (_server, mut client) = Server::conf("appendonly yes").with_client();
    let library = "#!lua name=locks
        redis.register_function('enter', function(keys, args) return redis.call('DLOCK.RACQUIRE', keys[1], args[1], 'PX', 60000) end)
        redis.register_function('leave', function(keys, args) return redis.call('DLOCK.RELEASE', keys[1], args[1]) end)
        redis.register_function{function_name='look', callback=function(keys) return redis.call('DLOCK.INFO', keys[1]) end, flags={'no-writes'}}";
    client.text(req!["FUNCTION", "LOAD", library]);
    let token = client.int("FCALL enter 1 k a");
    assert_eq!(client.int("FCALL enter 1 k a"), token);
    client.nil("FCALL enter 1 k b");
    assert_eq!(list_of(&client.run("FCALL_RO look 1 k")).len(), INFO);
    assert_eq!(client.int("FCALL leave 1 k a"), 0);
    assert_eq!(client.int("FCALL leave 1 k a"), 1);
    assert_eq!(client.int("EXISTS k"), 0);
}

#[test]
fn resp3_replies_in_scripts() {
    let server = Server::start();
    let mut client = server.client().resp3();
    client.int("DLOCK.ACQUIRE k a");
    let script = "redis.setresp(3) local info = redis.call('DLOCK.INFO', KEYS[1]) return info.map.mode";
    assert_eq!(client.text(req!["EVAL", script, 1, "k"]), "exclusive");
}
