//! A page for Prometheus, over HTTP.
//!
//! Silent connections hold up no scrape: a connection has a second for its request. If too many have sent none, the
//! oldest of them is closed for each new one.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Serves a page at `/metrics`, forever. If making the page takes longer than `limit`, the client gets the status 503.
///
/// Must be called inside a tokio runtime.
pub async fn serve_metrics<P, F>(listener: TcpListener, limit: Duration, page: P)
where
    P: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let answers = Arc::new(Semaphore::new(ANSWERS));
    let mut silent: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Errors such as too many open files are temporary. The pause keeps the loop from spinning.
            Err(_) => {
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        silent.retain(|connection| !connection.is_finished());
        if silent.len() >= SILENT
            && let Some(oldest) = silent.pop_front()
        {
            oldest.abort();
        }
        let (page, answers) = (page.clone(), answers.clone());
        let connection = tokio::spawn(async move {
            let mut stream = stream;
            if let Ok(Ok(request)) = timeout(REQUEST, head(&mut stream)).await {
                // The connection has sent its request, and no longer counts as silent.
                tokio::spawn(answer(stream, request, limit, page, answers));
            }
        });
        silent.push_back(connection.abort_handle());
    }
}

async fn answer<P, F>(mut stream: TcpStream, request: String, limit: Duration, page: P, answers: Arc<Semaphore>)
where
    P: Fn() -> F + Send + Sync,
    F: Future<Output = String> + Send,
{
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => match made(limit, page, &answers).await {
            Some(page) => ("200 OK", page),
            None => ("503 Service Unavailable", "Too many requests, or no answer in time.\n".to_owned()),
        },
        ("GET" | "HEAD", "/") => ("200 OK", PLACE.to_owned()),
        ("GET" | "HEAD", _) => ("404 Not Found", PLACE.to_owned()),
        _ => ("405 Method Not Allowed", "Only GET.\n".to_owned()),
    };
    let length = body.len();
    let body = if method == "HEAD" { "" } else { body.as_str() };
    let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
    let reply = format!("HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let written = async {
        stream.write_all(reply.as_bytes()).await?;
        stream.shutdown().await
    };
    // The connection of a client that does not read in time is closed.
    let _ = timeout(READING, written).await;
}

/// Makes the page. Returns `None` if too many pages are being made, or if this one is not made within the limit.
async fn made<P, F>(limit: Duration, page: P, answers: &Semaphore) -> Option<String>
where
    P: Fn() -> F,
    F: Future<Output = String>,
{
    let _permit = answers.try_acquire().ok()?;
    timeout(limit, page()).await.ok()
}

/// Reads the head of a request. Returns its first line.
async fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD {
        match stream.read(&mut chunk).await? {
            0 => break,
            count => head.extend(chunk.iter().take(count)),
        }
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match String::from_utf8_lossy(line).trim_end() {
        "" => Err(io::ErrorKind::UnexpectedEof.into()),
        line => Ok(line.to_owned()),
    }
}

const PLACE: &str = "The metrics are at /metrics.\n";

/// How long the head of a request may take.
const REQUEST: Duration = Duration::from_secs(1);
/// How long a client may take to read its reply.
const READING: Duration = Duration::from_secs(5);
/// How many connections without a request stay open.
const SILENT: usize = 64;
/// How many requests are answered at the same time.
const ANSWERS: usize = 64;
/// How many bytes of the head of a request are read. The rest is ignored.
const MAX_HEAD: usize = 8192;
