//! Clients that acquire locks with the shortest lease of a session, as fast as the server answers. They send a batch
//! only after all replies to the last one: otherwise, the requests that a paused server has read and not yet executed
//! would grow without limit.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::control::Control;

/// Attackers of the primary, until they are dropped.
pub struct Attackers {
    has_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attackers {
    /// Starts `count` attackers, which find the primary by the workers' orders in this directory.
    pub fn start(dir: &Path, count: u64) -> Attackers {
        let has_ended = Arc::new(AtomicBool::new(false));
        let begin = |attacker| {
            let (has_ended, control) = (Arc::clone(&has_ended), Control::in_dir(dir));
            std::thread::spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    // A server that is down, or was just replaced, is tried again.
                    let _ = attack(attacker, &control, &has_ended);
                    std::thread::sleep(AGAIN);
                }
            })
        };
        Attackers { threads: (0..count).map(begin).collect(), has_ended }
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Attacks the primary until it is another one, or the connection breaks.
fn attack(attacker: u64, control: &Control, has_ended: &AtomicBool) -> std::io::Result<()> {
    let primary = || control.read().map(|orders| orders.port).unwrap_or(0);
    let port = primary();
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    for batch in 0_u64.. {
        if has_ended.load(Ordering::Relaxed) || primary() != port {
            break;
        }
        let command = |n| format!("DLOCK.ACQUIRE {{c}}attack-{attacker}-{batch}-{n} o PX 300 SESSION\r\n");
        let commands: String = (0..BATCH).map(command).collect();
        stream.write_all(commands.as_bytes())?;
        read_replies(&mut stream)?;
    }
    Ok(())
}

/// Reads the replies to a batch. Each is one line: a token or an error.
fn read_replies(stream: &mut TcpStream) -> std::io::Result<()> {
    let (mut missing, mut chunk) = (usize::from(BATCH), [0; 16384]);
    while missing > 0 {
        let len = stream.read(&mut chunk)?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        missing = missing.saturating_sub(chunk.iter().take(len).filter(|byte| **byte == b'\n').count());
    }
    Ok(())
}

const BATCH: u16 = 200;
const PATIENCE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(20);
