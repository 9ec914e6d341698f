//! `CLIENT`.

use std::rc::Rc;

use dlock_core::reply::Writer;

use super::call::{Call, Done};
use super::client::Client;
use super::server::{self, Server};
use crate::hello::{client_name, shown};

pub(super) fn client(server: &mut Server, call: &Call<'_>) -> Done {
    let subcommand = call.upper(1);
    match (subcommand.as_str(), call.len()) {
        ("ID", 2) => call.out().integer(call.client.id),
        ("INFO", 2) => {
            let line = line(server, call.client);
            call.out().bytes(line.as_bytes());
        }
        ("LIST", _) => return list(server, call),
        ("GETNAME", 2) => {
            let name = call.client.name.borrow();
            if name.is_empty() { call.out().nil() } else { call.out().bytes(&name) }
        }
        ("SETNAME", 3) => {
            let name = client_name(call.word(2))?;
            call.client.name.replace(name.into_bytes());
            return call.ok();
        }
        ("SETINFO", 4) => return set_info(call),
        ("NO-EVICT" | "NO-TOUCH", 3) => match call.upper(2).as_str() {
            "ON" | "OFF" => return call.ok(),
            _ => return Err("ERR syntax error".to_owned()),
        },
        ("UNBLOCK", 3 | 4) => return unblock(server, call),
        ("KILL", 3..) => return kill(server, call),
        ("PAUSE" | "UNPAUSE" | "TRACKING" | "CACHING" | "REPLY" | "GETREDIR" | "TRACKINGINFO", _) => {
            return Err(format!("ERR dlock serve does not offer CLIENT {subcommand}"));
        }
        ("ID" | "INFO" | "GETNAME" | "SETNAME" | "SETINFO" | "NO-EVICT" | "NO-TOUCH" | "UNBLOCK" | "KILL", _) => {
            let name = subcommand.to_ascii_lowercase();
            return Err(format!("ERR wrong number of arguments for 'client|{name}' command"));
        }
        _ => return Err(format!("ERR unknown subcommand '{}'", shown(&subcommand))),
    }
    Ok(())
}

fn set_info(call: &Call<'_>) -> Done {
    let (value, option) = (call.word(3), call.upper(2).to_ascii_lowercase());
    if !value.iter().all(u8::is_ascii_graphic) {
        return Err(format!("ERR {} cannot contain spaces, newlines or special characters.", shown(&option)));
    }
    // Redis has no such limit. Without one, a client could make the server keep and list a text of any length.
    if value.len() > 256 {
        return Err(format!("ERR {} must have 256 bytes at most", shown(&option)));
    }
    let mut library = call.client.library.borrow_mut();
    match call.upper(2).as_str() {
        "LIB-NAME" => library.0 = value.to_vec(),
        "LIB-VER" => library.1 = value.to_vec(),
        other => return Err(format!("ERR Unrecognized option '{}'", shown(other))),
    }
    drop(library);
    call.ok()
}

fn id_of(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`.
fn unblock(server: &mut Server, call: &Call<'_>) -> Done {
    let error = match (call.len(), call.upper(3).as_str()) {
        (3, _) | (_, "TIMEOUT") => None,
        (_, "ERROR") => Some("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        _ => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".to_owned()),
    };
    let id: Option<i64> = std::str::from_utf8(call.word(2)).ok().and_then(|word| word.parse().ok());
    let id = id.ok_or("ERR value is not an integer or out of range")?;
    let is_done = u64::try_from(id).ok().and_then(server::find).is_some_and(|client| server.end_wait(&client, error));
    call.out().integer(u64::from(is_done));
    Ok(())
}

/// `CLIENT LIST [TYPE type | ID id …]`.
fn list(server: &Server, call: &Call<'_>) -> Done {
    let mut clients = server::clients();
    match (call.upper(2).as_str(), call.len()) {
        ("", 2) => {}
        ("TYPE", 4) => {
            let kind = kind_named(call.word(3))?;
            clients.retain(|client| kind_of(client) == kind);
        }
        ("ID", 4..) => {
            let ids: Option<Vec<u64>> = call.after(3).map(id_of).collect();
            let ids = ids.ok_or("ERR Invalid client ID")?;
            clients.retain(|client| ids.contains(&client.id));
        }
        _ => return Err("ERR syntax error".to_owned()),
    }
    let lines: String = clients.iter().map(|client| line(server, client)).collect();
    call.out().bytes(lines.as_bytes());
    Ok(())
}

/// `CLIENT KILL address`, or `CLIENT KILL` with `ID`, `ADDR`, `LADDR`, `USER`, `TYPE` and `SKIPME`.
fn kill(server: &mut Server, call: &Call<'_>) -> Done {
    let mut chosen = server::clients();
    if call.len() == 3 {
        chosen.retain(|client| client.address.as_bytes() == call.word(2));
        let found = chosen.first().ok_or("ERR No such client")?.clone();
        end(server, call, &found);
        return call.ok();
    }
    let mut spares_own = true;
    for at in (2..call.len()).step_by(2) {
        let value = call.word(at + 1);
        if at + 1 >= call.len() {
            return Err("ERR syntax error".to_owned());
        }
        match call.upper(at).as_str() {
            "ID" => {
                let id = id_of(value).filter(|id| *id > 0).ok_or("ERR client-id should be greater than 0")?;
                chosen.retain(|client| client.id == id);
            }
            "ADDR" => chosen.retain(|client| client.address.as_bytes() == value),
            "LADDR" => chosen.retain(|client| client.local.as_bytes() == value),
            "USER" if *value == *server.keys.user => {}
            "USER" => return Err(format!("ERR No such user '{}'", shown(&String::from_utf8_lossy(value)))),
            "TYPE" => {
                let kind = kind_named(value)?;
                chosen.retain(|client| kind_of(client) == kind);
            }
            "SKIPME" if value.eq_ignore_ascii_case(b"yes") => spares_own = true,
            "SKIPME" if value.eq_ignore_ascii_case(b"no") => spares_own = false,
            _ => return Err("ERR syntax error".to_owned()),
        }
    }
    chosen.retain(|client| !spares_own || client.id != call.client.id);
    chosen.iter().for_each(|client| end(server, call, client));
    call.out().integer(chosen.len() as u64);
    Ok(())
}

/// Ends a connection: the caller's own once the reply is sent.
fn end(server: &mut Server, call: &Call<'_>, client: &Rc<Client>) {
    if client.id == call.client.id {
        client.is_leaving.set(true);
    } else {
        server.disconnect(client);
    }
}

fn kind_of(client: &Client) -> &'static str {
    if client.subscriptions() > 0 { "PUBSUB" } else { "NORMAL" }
}

/// Returns the kind of clients that a word names, as in Redis. Kinds of replication have no clients here.
fn kind_named(word: &[u8]) -> Result<&'static str, String> {
    let kinds = ["NORMAL", "PUBSUB", "MASTER", "REPLICA", "SLAVE"];
    let kind = kinds.into_iter().find(|kind| word.eq_ignore_ascii_case(kind.as_bytes()));
    kind.ok_or_else(|| format!("ERR Unknown client type '{}'", shown(&String::from_utf8_lossy(word))))
}

/// Returns the line of a client in the format of Redis, with fewer fields.
fn line(server: &Server, client: &Client) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (library, version) = &*client.library.borrow();
    let transaction =
        client.transaction.borrow().as_ref().map_or(-1, |it| i64::try_from(it.requests.len()).unwrap_or(-1));
    let mut flags = String::new();
    for (is_so, flag) in [
        (client.is_waiting(), 'b'),
        (client.subscriptions() > 0, 'P'),
        (transaction >= 0, 'x'),
        (client.local == "unix", 'U'),
    ] {
        flags.extend(is_so.then_some(flag));
    }
    if flags.is_empty() {
        flags.push('N');
    }
    format!(
        "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub={} psub={} multi={transaction} qbuf=0 omem={} \
         cmd={} user={} resp={} lib-name={} lib-ver={}\n",
        client.id,
        client.address,
        client.local,
        text(&client.name.borrow()),
        client.since.elapsed().as_secs(),
        client.last.get().elapsed().as_secs(),
        client.db.get(),
        client.channels.borrow().len(),
        client.patterns.borrow().len(),
        client.unsent(),
        client.last_command.get().to_ascii_lowercase(),
        text(&server.keys.user),
        client.out.borrow().protocol.number(),
        text(library),
        text(version),
    )
}
