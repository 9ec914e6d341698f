//! `SUBSCRIBE` and its like.

use dlock_core::reply::Writer;

use super::call::{Call, Done};
use super::server::Server;

/// `SUBSCRIBE`, `PSUBSCRIBE`.
pub(super) fn subscribe(server: &mut Server, call: &Call<'_>) -> Done {
    let (kind, is_pattern) = kind(call);
    for name in call.after(1) {
        if call.client.subscriptions() >= MOST {
            return Err(format!("ERR at most {MOST} subscriptions of a client"));
        }
        server.channels.subscribe(call.client, name, is_pattern);
        tell(call, &kind, Some(name));
    }
    Ok(())
}

/// `UNSUBSCRIBE`, `PUNSUBSCRIBE`.
pub(super) fn unsubscribe(server: &mut Server, call: &Call<'_>) -> Done {
    let (kind, is_pattern) = kind(call);
    let names: Vec<Vec<u8>> = if call.len() > 1 {
        call.after(1).map(<[u8]>::to_vec).collect()
    } else {
        let own = if is_pattern { &call.client.patterns } else { &call.client.channels };
        own.borrow().iter().cloned().collect()
    };
    if names.is_empty() {
        tell(call, &kind, None);
    }
    for name in &names {
        server.channels.unsubscribe(call.client, name, is_pattern);
        tell(call, &kind, Some(name));
    }
    Ok(())
}

fn kind(call: &Call<'_>) -> (String, bool) {
    (call.shown_name().to_ascii_lowercase(), call.shown_name().starts_with('P'))
}

fn tell(call: &Call<'_>, kind: &str, name: Option<&[u8]>) {
    let count = call.client.subscriptions();
    let mut out = call.out();
    out.push(3);
    out.bytes(kind.as_bytes());
    match name {
        Some(name) => out.bytes(name),
        None => out.nil(),
    }
    out.integer(count as u64);
}

/// How many channels and patterns a client may hear.
const MOST: usize = 1000;
