//! Commands that clients send before and beside locks.

use std::time::Instant;

use dlock_core::reply::Writer;

use super::call::{Call, Done, Refused};
use super::options::{DATABASES, REDIS_VERSION};
use super::server::Server;
use crate::hello::{Hello, client_name};
use crate::resp::{Protocol, Reply};
use crate::stats::Stats;

pub(super) fn hello(server: &mut Server, call: &Call<'_>) -> Done {
    let hello = Hello::parse(call.request.words().get(1..).unwrap_or_default())?;
    if let Some((user, password)) = hello.login {
        log_in(server, call, user, password)?;
    }
    if !call.client.is_logged_in.get() {
        return Err(Hello::NO_LOGIN.to_owned());
    }
    if let Some(name) = hello.name {
        let name = client_name(name)?;
        call.client.name.replace(name.into_bytes());
    }
    let mut out = call.out();
    out.protocol = hello.protocol.unwrap_or(out.protocol);
    let module = Reply::fields(vec![("name", Reply::bulk("dlock")), ("ver", Reply::Integer(version()))]);
    let facts = Reply::fields(vec![
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(REDIS_VERSION)),
        ("proto", Reply::Integer(out.protocol.number())),
        ("id", Reply::number(call.client.id)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(vec![module])),
    ]);
    out.reply(&facts);
    Ok(())
}

/// Returns the version as the module tells it: 2.3.4 is 20304.
pub(super) fn version() -> i64 {
    let parts = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    parts.iter().fold(0, |sum, part| sum * 100 + part.parse::<i64>().unwrap_or_default())
}

pub(super) fn auth(server: &mut Server, call: &Call<'_>) -> Done {
    match call.len() {
        2 if server.options.login.is_none() => {
            return Err(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                        your configuration is correct?"
                    .to_owned(),
            );
        }
        2 => log_in(server, call, b"default", call.word(1))?,
        3 => log_in(server, call, call.word(1), call.word(2))?,
        _ => return Err("ERR syntax error".to_owned()),
    }
    call.ok()
}

fn log_in(server: &Server, call: &Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Refused> {
    // Without a login, the user default has any password.
    let is_right = match &server.options.login {
        Some(login) => login.is(user, password),
        None => user == b"default",
    };
    if !is_right {
        Stats::count(&server.stats.wrong_passwords);
        call.client.has_guessed.set(true);
        return Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned());
    }
    call.client.is_logged_in.set(true);
    Ok(())
}

pub(super) fn ping(_: &mut Server, call: &Call<'_>) -> Done {
    let mut out = call.out();
    let hears = call.client.subscriptions() > 0 && out.protocol == Protocol::Resp2;
    match (call.len(), hears) {
        (1 | 2, true) => {
            out.array(2);
            out.bytes(b"pong");
            out.bytes(call.word(1));
        }
        (1, false) => out.status("PONG"),
        (2, false) => out.bytes(call.word(1)),
        _ => {
            drop(out);
            return Err("ERR wrong number of arguments for 'ping' command".to_owned());
        }
    }
    Ok(())
}

pub(super) fn echo(_: &mut Server, call: &Call<'_>) -> Done {
    call.out().bytes(call.word(1));
    Ok(())
}

pub(super) fn quit(_: &mut Server, call: &Call<'_>) -> Done {
    call.client.is_leaving.set(true);
    call.ok()
}

pub(super) fn reset(server: &mut Server, call: &Call<'_>) -> Done {
    let client = call.client;
    client.transaction.take();
    server.channels.leave(client);
    client.db.set(0);
    client.name.take();
    if server.options.login.is_some() && client.is_logged_in.replace(false) {
        client.stranger_since.set(Instant::now());
    }
    let mut out = call.out();
    out.protocol = Protocol::Resp2;
    out.status("RESET");
    Ok(())
}

pub(super) fn select(_: &mut Server, call: &Call<'_>) -> Done {
    let text = std::str::from_utf8(call.word(1)).unwrap_or_default();
    let db = text.parse::<i32>().map_err(|_| "ERR value is not an integer or out of range")?;
    if !(0..DATABASES).contains(&db) {
        return Err("ERR DB index is out of range".to_owned());
    }
    call.client.db.set(db);
    call.ok()
}
