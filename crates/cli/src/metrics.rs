//! `dlock metrics`: the counters of servers, and their most contended locks, for Prometheus.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use dlock_client::{Client, Error, LockInfo, ServerStats};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::exposition::{Page, add_lock, add_missing_server, add_server, add_stats};
use crate::output::{print, say};
use crate::{exit, fail};

/// `dlock metrics`.
#[derive(Args)]
pub struct MetricsOptions {
    /// Serve them at http://ADDRESS/metrics, such as 127.0.0.1:9122 [default: print them once]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,

    /// How many of the most contended locks to show, at most 16 (three series each)
    #[arg(long, value_name = "N", default_value_t = crate::metrics::MAX_LOCKS, value_parser = locks)]
    pub locks: usize,

    /// Names of the locks to show, with * and ? as in KEYS
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    pub pattern: OsString,
}

fn locks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=crate::metrics::MAX_LOCKS) => Ok(count),
        _ => Err(format!("from 0 to {}", crate::metrics::MAX_LOCKS)),
    }
}

pub async fn metrics(clients: Vec<Client>, options: MetricsOptions) -> Result<u8, Error> {
    let source = Source { clients, options };
    let Some(address) = source.options.listen else {
        print(source.page().await.trim_end());
        return Ok(0);
    };
    match listen(address, source).await {
        Ok(()) => Ok(0),
        Err(error) => Ok(fail(exit::UNAVAILABLE, &format!("{address}: {error}"))),
    }
}

struct Source {
    clients: Vec<Client>,
    options: MetricsOptions,
}

impl Source {
    async fn page(&self) -> String {
        let mut page = Page::default();
        let mut locks = Vec::new();
        for client in &self.clients {
            let waiters = match client.server_stats().await {
                Err(error) => {
                    add_missing_server(&mut page, &client.place().unwrap_or_default(), &error);
                    continue;
                }
                Ok(found) => {
                    found.missing.iter().for_each(|(server, error)| add_missing_server(&mut page, server, error));
                    found.answers.iter().map(|(server, stats)| add_counters(&mut page, server, stats)).sum::<u64>()
                }
            };
            // Without waiters no lock is contended, and a scan of all keys is expensive.
            if waiters == 0 || self.options.locks == 0 {
                continue;
            }
            if let Ok(found) = client.survey(self.options.pattern.as_encoded_bytes(), 1).await {
                let of = |(server, found): (String, Vec<LockInfo>)| found.into_iter().map(move |l| (server.clone(), l));
                locks.extend(found.answers.into_iter().flat_map(of).filter(|(_, lock)| lock.waiters > 0));
            }
        }
        locks.sort_by_cached_key(|(server, lock)| (Reverse(lock.waiters), server.clone(), lock.name.clone()));
        locks
            .iter()
            .take(self.options.locks.min(MAX_LOCKS))
            .for_each(|(server, lock)| add_lock(&mut page, server, lock));
        page.text()
    }
}

/// Adds the counters of a server, and returns its number of waiters.
fn add_counters(page: &mut Page, server: &str, stats: &ServerStats) -> u64 {
    add_server(page, server);
    add_stats(page, server, stats);
    let waiters = stats.fields.iter().find(|(name, _)| name == "dlock_waiters");
    waiters.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

async fn listen(address: SocketAddr, source: Source) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    say(&format!("dlock: metrics at http://{}/metrics", listener.local_addr()?));
    // Makes one page at a time: clients that ask at the same moment do not multiply the load on the servers.
    let source = Arc::new(Mutex::new(source));
    let page = move || {
        let source = source.clone();
        async move { source.lock().await.page().await }
    };
    dlock_agent::serve_metrics(listener, REQUEST, page).await;
    Ok(())
}

/// The most locks on a page. Each has three series, 48 in total.
pub const MAX_LOCKS: usize = 16;

/// How long a page may take, with all questions to the servers.
const REQUEST: Duration = Duration::from_secs(30);
