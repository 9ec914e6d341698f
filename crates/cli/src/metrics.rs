//! `dlock metrics`: what servers count, and their most contended locks, for Prometheus.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dlock_client::{Client, Error, LockInfo, ServerStats};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

use crate::args::MetricsOptions;
use crate::exposition::{Page, lock_of, missing, server_is_up, stats_of};
use crate::output::print;
use crate::{exit, fail};

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
                    missing(&mut page, &client.place().unwrap_or_default(), &error);
                    continue;
                }
                Ok(found) => {
                    found.missing.iter().for_each(|(server, error)| missing(&mut page, server, error));
                    found.answers.iter().map(|(server, stats)| told(&mut page, server, stats)).sum::<u64>()
                }
            };
            // Most of the time nobody waits, and the scan of all keys is saved.
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
            .for_each(|(server, lock)| lock_of(&mut page, server, lock));
        page.text()
    }
}

/// Adds what a server counts, and returns how many wait there.
fn told(page: &mut Page, server: &str, stats: &ServerStats) -> u64 {
    server_is_up(page, server);
    stats_of(page, server, stats);
    let waiters = stats.fields.iter().find(|(name, _)| name == "dlock_waiters");
    waiters.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

async fn listen(address: SocketAddr, source: Source) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    eprintln!("dlock: metrics at http://{}/metrics", listener.local_addr()?);
    // One at a time: those who ask at the same moment do not multiply the load on the servers.
    let source = Arc::new(Mutex::new(source));
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Such as too many open files: it passes.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let source = Arc::clone(&source);
        tokio::spawn(async move {
            let _ = timeout(REQUEST, answer(stream, &source)).await;
            drop(permit);
        });
    }
}

async fn answer(mut stream: TcpStream, source: &Mutex<Source>) -> std::io::Result<()> {
    let request = head(&mut stream).await?;
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", source.lock().await.page().await),
        ("GET" | "HEAD", "/") => ("200 OK", "The metrics are at /metrics.\n".to_owned()),
        ("GET" | "HEAD", _) => ("404 Not Found", "The metrics are at /metrics.\n".to_owned()),
        _ => ("405 Method Not Allowed", "Only GET.\n".to_owned()),
    };
    let length = body.len();
    let body = if method == "HEAD" { "" } else { body.as_str() };
    let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
    let reply = format!("HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads the head of a request. Returns its first line.
async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD {
        match stream.read(&mut chunk).await? {
            0 => break,
            count => head.extend(chunk.iter().take(count)),
        }
    }
    Ok(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}

/// Three series for each lock: 48 in total.
pub const MAX_LOCKS: usize = 16;

const CONNECTIONS: usize = 16;
const MAX_HEAD: usize = 8192;

/// How long a request may take, with everything that the servers are asked for.
const REQUEST: Duration = Duration::from_secs(30);
