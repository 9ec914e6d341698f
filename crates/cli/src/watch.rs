//! `dlock watch`: the changes of the holders of a lock, of ten at most.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_client::{Client, Error, HoldInfo};
use serde_json::json;

use crate::output::{Reader, for_people, is_broken, millis, moment, print, shown, text};

pub async fn watch(client: &Client, name: &[u8], json: bool) -> Result<u8, Error> {
    let people = for_people(json);
    let mut watch = client.watch(name)?;
    let mut first = true;
    let mut reader = Reader::watch();
    while !is_broken() {
        let seen = tokio::select! {
            seen = watch.next() => seen,
            () = reader.gone() => None,
        };
        let Some(seen) = seen else { return Ok(0) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match seen {
            Ok(holds) if people => holders(&holds).iter().for_each(|line| print(&format!("{}  {line}", moment(now)))),
            Ok(holds) => print(&held(name, now, &holds).to_string()),
            // A server that does not answer the first time ends the command instead.
            Err(error @ Error::Unreachable(_)) if !first => {
                if people {
                    print(&format!("{}  unknown: {error}", moment(now)));
                } else {
                    let why = error.to_string();
                    print(
                        &json!({"name": text(name), "time": millis(now), "state": "unknown", "why": why}).to_string(),
                    );
                }
            }
            Err(error) => return Err(error),
        }
        first = false;
    }
    Ok(0)
}

fn held(name: &[u8], now: Duration, holds: &[HoldInfo]) -> serde_json::Value {
    let holders = holds.iter().map(|hold| {
        json!({
            "owner": text(&hold.owner),
            "mode": hold.mode.to_string(),
            "token": hold.token,
            "since": hold.token / 1000,
        })
    });
    json!({
        "name": text(name),
        "time": millis(now),
        "state": if holds.is_empty() { "free" } else { "held" },
        "holders": holders.collect::<Vec<_>>(),
    })
}

fn holders(holds: &[HoldInfo]) -> Vec<String> {
    if holds.is_empty() {
        return vec!["free".to_owned()];
    }
    let line = |hold: &HoldInfo| {
        let since = moment(Duration::from_micros(hold.token));
        format!("{}  {}  token {}  since {since}", shown(&hold.owner), hold.mode, hold.token)
    };
    holds.iter().map(line).collect()
}
