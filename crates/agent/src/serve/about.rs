//! The server's facts about itself, and its settings.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_core::reply::Writer;
use dlock_core::settings::Setting;

use super::call::{Call, Done, Refused};
use super::options::{DATABASES, REDIS_VERSION, in_range, setting};
use super::server::{self, Server};
use super::{glob, memory};
use crate::hello::shown;
use crate::resp::Reply;

/// The warning that operators read at the start and in `INFO`.
pub(crate) const MEMORY_ONLY: &str = "memory only: this server loses its locks when it ends";

pub(super) fn acl(server: &mut Server, call: &Call<'_>) -> Done {
    match call.upper(1).as_str() {
        "WHOAMI" if call.len() == 2 => {
            call.out().bytes(&server.keys.user);
            Ok(())
        }
        other => Err(format!("ERR dlock serve has one user, and does not offer ACL {}", shown(other))),
    }
}

pub(super) fn time(_: &mut Server, call: &Call<'_>) -> Done {
    let now = call.now.us();
    let mut out = call.out();
    out.array(2);
    out.bytes((now / 1_000_000).to_string().as_bytes());
    out.bytes((now % 1_000_000).to_string().as_bytes());
    Ok(())
}

pub(super) fn role(_: &mut Server, call: &Call<'_>) -> Done {
    let mut out = call.out();
    out.array(3);
    out.bytes(b"master");
    out.integer(0);
    out.array(0);
    Ok(())
}

/// `WAIT numreplicas timeout`: replies at once, because there are no replicas.
pub(super) fn wait(_: &mut Server, call: &Call<'_>) -> Done {
    whole(call, 1)?;
    whole(call, 2)?;
    call.out().integer(0);
    Ok(())
}

/// `WAITAOF numlocal numreplicas timeout`.
pub(super) fn wait_aof(_: &mut Server, call: &Call<'_>) -> Done {
    let local = whole(call, 1)?;
    whole(call, 2)?;
    whole(call, 3)?;
    if local > 0 {
        return Err("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".to_owned());
    }
    let mut out = call.out();
    out.array(2);
    out.integer(0);
    out.integer(0);
    Ok(())
}

fn whole(call: &Call<'_>, at: usize) -> Result<u64, String> {
    let text = std::str::from_utf8(call.word(at)).unwrap_or_default();
    text.parse().map_err(|_| "ERR value is not an integer or out of range".to_owned())
}

/// `DLOCK.CLOCK [ADVANCE milliseconds]`.
pub(super) fn clock(server: &mut Server, call: &Call<'_>) -> Done {
    if !server.options.test_clock {
        return Err("ERR DLOCK.CLOCK is for tests: start dlock serve with --test-clock".to_owned());
    }
    match (call.upper(1).as_str(), call.len()) {
        ("", 1) => {}
        ("ADVANCE", 3) if call.is_in_transaction => {
            return Err("ERR the clock stands still in a transaction".to_owned());
        }
        ("ADVANCE", 3) => {
            let ms = Some(whole(call, 2)?).filter(|ms| *ms <= MOST_MS);
            server.advance(ms.ok_or_else(|| format!("ERR at most {MOST_MS} ms at once"))?);
        }
        _ => return Err("ERR syntax error: DLOCK.CLOCK [ADVANCE milliseconds]".to_owned()),
    }
    call.out().integer(server.now_ms().get());
    Ok(())
}

/// A year and a day: longer than every lease.
const MOST_MS: u64 = 366 * 24 * 3_600_000;

// Settings.

pub(super) fn config(server: &mut Server, call: &Call<'_>) -> Done {
    match (call.upper(1).as_str(), call.len()) {
        ("GET", 3..) => get(server, call),
        ("SET", 4..) if call.len().is_multiple_of(2) => set(server, call),
        ("SET", 4..) => Err("ERR syntax error".to_owned()),
        ("GET" | "SET", _) => {
            let name = call.upper(1).to_ascii_lowercase();
            Err(format!("ERR wrong number of arguments for 'config|{name}' command"))
        }
        (other, _) => Err(format!("ERR dlock serve does not offer CONFIG {}", shown(other))),
    }
}

fn get(server: &Server, call: &Call<'_>) -> Done {
    let own = Setting::ALL.map(|which| (format!("dlock.{}", which.range().name), server.setting(which).to_string()));
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let others = [
        text("appendonly", "no"),
        text("databases", &DATABASES.to_string()),
        text("maxclients", &server.options.max_clients.to_string()),
        text("maxmemory", &server.options.max_memory.to_string()),
        text("maxmemory-policy", "noeviction"),
        text("notify-keyspace-events", &server.channels.flags),
        text("save", ""),
        text("timeout", "0"),
    ];
    let asked = |name: &str| call.after(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
    let found = own.into_iter().chain(others).filter(|(name, _)| asked(name));
    let found = found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value)));
    call.out().reply(&Reply::Map(found.collect()));
    Ok(())
}

fn set(server: &mut Server, call: &Call<'_>) -> Done {
    let mut numbers = Vec::new();
    let mut events = None;
    for (which, at) in named(call)?.into_iter().zip((3..call.len()).step_by(2)) {
        let value = String::from_utf8_lossy(call.word(at));
        let failed = |why: &str| not_set(&call.upper(at - 1).to_ascii_lowercase(), why);
        match which {
            Some(which) => numbers.push((which, in_range(which, &value).map_err(|why| failed(&why))?)),
            None if value.chars().all(|class| "KEAg$lshzxetdmn".contains(class)) => events = Some(value.into_owned()),
            None => return Err(failed("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")),
        }
    }
    // Every value is valid here: all settings are set, or none.
    numbers.into_iter().for_each(|(which, value)| server.set(which, value));
    if let Some(events) = events {
        server.channels.flags = events;
    }
    call.ok()
}

/// Returns the settings that `CONFIG SET` names, each once. `None`: `notify-keyspace-events`.
fn named(call: &Call<'_>) -> Result<Vec<Option<Setting>>, Refused> {
    let mut all = Vec::new();
    for said in (2..call.len()).step_by(2).map(|at| String::from_utf8_lossy(call.word(at))) {
        let name = said.to_ascii_lowercase();
        let own = Some(&name).filter(|name| name.starts_with("dlock.")).and_then(|name| setting(name));
        if own.is_none() && name != "notify-keyspace-events" {
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{}'", shown(&said)));
        }
        if all.contains(&own) {
            return Err(not_set(&said, "duplicate parameter"));
        }
        all.push(own);
    }
    Ok(all)
}

fn not_set(name: &str, why: &str) -> Refused {
    format!("ERR CONFIG SET failed (possibly related to argument '{}') - {why}", shown(name))
}

// INFO.

pub(super) fn info(server: &mut Server, call: &Call<'_>) -> Done {
    let asked: Vec<String> = (1..call.len()).map(|at| call.upper(at)).collect();
    let is_asked = |name: &str| {
        let all = ["ALL", "DEFAULT", "EVERYTHING"];
        asked.is_empty() || asked.iter().any(|one| all.contains(&one.as_str()) || one.eq_ignore_ascii_case(name))
    };
    let mut text = String::new();
    for (name, section) in SECTIONS {
        if is_asked(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            for (field, value) in section(server) {
                let _ = write!(text, "{field}:{value}\r\n");
            }
        }
    }
    call.out().bytes(text.as_bytes());
    Ok(())
}

type Fields = Vec<(String, String)>;
/// The name of a section, and what it shows.
type Section = (&'static str, fn(&Server) -> Fields);

const SECTIONS: [Section; 8] = [
    ("Server", about_server),
    ("Clients", about_clients),
    ("Memory", about_memory),
    ("Persistence", about_persistence),
    ("Stats", about_stats),
    ("Replication", about_replication),
    ("Keyspace", about_keys),
    ("dlock", about_locks),
];

fn fields(all: &[(&str, String)]) -> Fields {
    all.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// Returns the section `Server`. The uptime leaves out what `DLOCK.CLOCK` added: a quorum relies on it to wait until
/// locks that the server may have forgotten have ended.
fn about_server(server: &Server) -> Fields {
    let ran: Duration = server.clock.ran();
    fields(&[
        ("redis_version", REDIS_VERSION.to_owned()),
        ("server_name", "dlock-serve".to_owned()),
        ("dlock_serve", MEMORY_ONLY.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("process_id", std::process::id().to_string()),
        ("run_id", server.run_id.clone()),
        ("tcp_port", server.port.to_string()),
        ("server_time_usec", server.clock.now().us().to_string()),
        ("uptime_in_seconds", ran.as_secs().to_string()),
        ("uptime_in_days", (ran.as_secs() / 86_400).to_string()),
    ])
}

fn about_clients(server: &Server) -> Fields {
    let waiting = server::clients().iter().filter(|client| client.is_waiting()).count();
    fields(&[
        ("connected_clients", server::count().to_string()),
        ("maxclients", server.options.max_clients.to_string()),
        ("blocked_clients", waiting.to_string()),
        ("client_buffers", server.buffered.to_string()),
    ])
}

fn about_memory(server: &Server) -> Fields {
    let used = memory::resident().unwrap_or_default();
    fields(&[
        ("used_memory", used.to_string()),
        ("used_memory_rss", used.to_string()),
        ("maxmemory", server.options.max_memory.to_string()),
        ("maxmemory_policy", "noeviction".to_owned()),
    ])
}

fn about_persistence(_: &Server) -> Fields {
    let none = ["loading", "async_loading", "rdb_changes_since_last_save", "rdb_bgsave_in_progress", "aof_enabled"];
    none.iter().map(|name| ((*name).to_owned(), "0".to_owned())).collect()
}

fn about_stats(server: &Server) -> Fields {
    let stats = &server.stats;
    fields(&[
        ("total_connections_received", stats.connections.load(Ordering::Relaxed).to_string()),
        ("total_commands_processed", stats.commands.load(Ordering::Relaxed).to_string()),
        ("rejected_connections", stats.rejected_connections.load(Ordering::Relaxed).to_string()),
        ("protocol_errors", stats.protocol_errors.load(Ordering::Relaxed).to_string()),
    ])
}

fn about_replication(server: &Server) -> Fields {
    fields(&[
        ("role", "master".to_owned()),
        ("connected_slaves", "0".to_owned()),
        ("master_replid", server.run_id.clone()),
        ("master_repl_offset", "0".to_owned()),
        ("second_repl_offset", "-1".to_owned()),
    ])
}

fn about_keys(server: &Server) -> Fields {
    let sizes = (0..DATABASES).map(|db| (db, server.keys.len_of(db))).filter(|(_, size)| *size > 0);
    sizes.map(|(db, size)| (format!("db{db}"), format!("keys={size},expires={size},avg_ttl=0"))).collect()
}

fn about_locks(server: &Server) -> Fields {
    let info = server.engine.info(env!("CARGO_PKG_VERSION"));
    info.into_iter().map(|(name, value)| (format!("dlock_{name}"), value)).collect()
}
