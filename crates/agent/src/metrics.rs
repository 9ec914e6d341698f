//! The page for Prometheus, over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::agent::Shared;

pub(crate) async fn open(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}

/// Answers forever: each takes no longer than a second, and one that is slow holds up no other.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut answers = JoinSet::new();
    loop {
        while answers.len() >= AT_ONCE {
            answers.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                answers.spawn(async move { _ = timeout(PATIENCE, answer(stream, &shared)).await });
            }
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
        while answers.try_join_next().is_some() {}
    }
}

async fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD {
        match stream.read(&mut chunk).await? {
            0 => break,
            count => head.extend(chunk.iter().take(count)),
        }
    }
    let (status, body) = match head.starts_with(b"GET /metrics ") {
        true => ("200 OK", shared.page()),
        false => ("404 Not Found", "The metrics are at /metrics.\n".to_owned()),
    };
    let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let reply = format!("HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

const PATIENCE: Duration = Duration::from_secs(1);
/// How many are answered at once.
const AT_ONCE: usize = 16;
const MAX_HEAD: usize = 8192;
