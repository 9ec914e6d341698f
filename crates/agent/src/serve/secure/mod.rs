//! TLS for clients (feature `tls`), with the library that the clients of dlock use.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use super::options::Certificates;

/// The certificates of the server. Their files are read again when they have changed, because a restart would lose the
/// locks.
pub(super) struct Authority {
    files: Certificates,
    config: RefCell<Arc<ServerConfig>>,
    /// When the files were last checked.
    checked: Cell<Instant>,
    /// The times at which the files had been written when they were last read.
    written: RefCell<Vec<Option<SystemTime>>>,
}

impl Authority {
    pub fn read(files: &Certificates) -> io::Result<Self> {
        let written = RefCell::new(written(files));
        let config = RefCell::new(config(files)?);
        Ok(Self { files: files.clone(), config, checked: Cell::new(Instant::now()), written })
    }

    /// Begins a connection.
    pub fn secure(&self, socket: TcpStream) -> io::Result<Secured> {
        let tls = ServerConnection::new(self.config.borrow().clone()).map_err(Error::other)?;
        let state = State { tls, encrypted: Vec::new(), sent: 0, handshake: 0, has_read_ahead: false };
        Ok(Secured { socket, state: RefCell::new(state) })
    }

    /// Reads the files again if they were replaced. Returns a line for the log.
    pub fn reload_if_changed(&self) -> Option<String> {
        if self.checked.get().elapsed() < LOOK {
            return None;
        }
        self.checked.set(Instant::now());
        let written = written(&self.files);
        if written == *self.written.borrow() {
            return None;
        }
        self.written.replace(written);
        Some(match config(&self.files) {
            Ok(new) => {
                self.config.replace(new);
                "takes the new certificate".to_owned()
            }
            Err(error) => format!("keeps the certificate that it has: {error}"),
        })
    }
}

/// Returns when the files were written.
fn written(files: &Certificates) -> Vec<Option<SystemTime>> {
    let paths = [Some(&files.cert), Some(&files.key), files.ca.as_ref()];
    paths.into_iter().flatten().map(|path| path.metadata().and_then(|about| about.modified()).ok()).collect()
}

fn config(files: &Certificates) -> io::Result<Arc<ServerConfig>> {
    let invalid =
        |path: &Path, why: &dyn fmt::Display| Error::new(ErrorKind::InvalidInput, format!("{}: {why}", path.display()));
    let chain = |path: &Path| {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let read = read.map_err(|error| invalid(path, &error))?;
        if read.is_empty() { Err(invalid(path, &"there is no certificate in it (PEM)")) } else { Ok(read) }
    };
    let provider = Arc::new(ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let versions = versions.map_err(Error::other)?;
    let builder = match &files.ca {
        None => versions.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in chain(path)? {
                roots.add(certificate).map_err(|error| invalid(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            versions.with_client_cert_verifier(verifier.build().map_err(|error| invalid(path, &error))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| invalid(&files.key, &error))?;
    let config = builder.with_single_cert(chain(&files.cert)?, key);
    Ok(Arc::new(config.map_err(|error| invalid(&files.cert, &error))?))
}

/// A connection that speaks TLS.
pub(super) struct Secured {
    socket: TcpStream,
    state: RefCell<State>,
}

struct State {
    tls: ServerConnection,
    /// Bytes for the socket, and how many of them it has taken.
    encrypted: Vec<u8>,
    sent: usize,
    /// How many bytes of the handshake the client has sent.
    handshake: usize,
    has_read_ahead: bool,
}

impl Secured {
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.borrow_mut();
        match state.take(to) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
        let is_handshaking = state.tls.is_handshaking();
        let count = state.tls.read_tls(&mut Socket(&self.socket))?;
        if count == 0 {
            return Ok(0);
        }
        if is_handshaking {
            state.handshake += count;
            if state.handshake > MOST_HANDSHAKE {
                return Err(Error::new(ErrorKind::InvalidData, "the handshake is too long"));
            }
        }
        let processed = state.tls.process_new_packets().map_err(|error| Error::new(ErrorKind::InvalidData, error));
        // Sends the next part of the handshake, or why it has failed. The socket may not take it yet.
        match state.push(&self.socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        processed?;
        state.take(to)
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state.borrow_mut();
        state.push(&self.socket)?;
        let count = state.tls.writer().write(bytes.get(..RECORD).unwrap_or(bytes))?;
        match state.push(&self.socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    pub fn push(&self) -> io::Result<()> {
        self.state.borrow_mut().push(&self.socket)
    }

    pub fn unsent(&self) -> usize {
        let state = self.state.borrow();
        state.encrypted.len() - state.sent
    }

    pub fn has_read_ahead(&self) -> bool {
        self.state.borrow().has_read_ahead
    }

    pub fn is_handshaking(&self) -> bool {
        self.state.borrow().tls.is_handshaking()
    }

    pub fn say_end(&self) {
        let mut state = self.state.borrow_mut();
        state.tls.send_close_notify();
        // The connection closes even if the socket does not take all of it.
        let _ = state.push(&self.socket);
    }
}

impl State {
    /// Takes what was decrypted.
    fn take(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let taken = self.tls.reader().read(to);
        self.has_read_ahead = taken.as_ref().is_ok_and(|count| *count == to.len() && *count > 0);
        taken
    }

    fn push(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.encrypted)?;
        }
        while let Some(rest) = self.encrypted.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match socket.try_write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        (self.encrypted, self.sent) = (Vec::new(), 0);
        Ok(())
    }
}

/// The socket, as the library reads it.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(to)
    }
}

/// Prints the socket only: the state has secret keys.
impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// How often the files are checked.
const LOOK: Duration = Duration::from_secs(1);
/// How many bytes of a handshake a client may send. The client's certificate, with its chain, is among them.
const MOST_HANDSHAKE: usize = 32 << 10;
/// The bytes of one message of TLS: no more are encrypted before the socket has taken them.
const RECORD: usize = 16 << 10;
