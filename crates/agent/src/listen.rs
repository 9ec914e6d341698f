//! The sockets on which the agent accepts clients.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use tokio::io::{AsyncRead, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, tcp, unix};
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::options::{Access, Listen};
use crate::stats::Stats;

/// A listening socket. Dropping a listener closes the socket, and removes the file of a Unix socket.
pub(crate) struct Listener {
    socket: Arc<Socket>,
    /// The file of a Unix socket.
    path: Option<PathBuf>,
    /// The address, as it is shown to people.
    shown: String,
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A client that has connected.
pub(crate) enum Incoming {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr),
}

/// The half of a client's connection on which requests come.
pub(crate) trait ClientReader: AsyncRead + Unpin + Send {
    /// Returns whether the client has closed its side, even if some of its bytes are unread. Waits until it has,
    /// or there is something to read.
    fn has_hung_up(&self) -> impl Future<Output = bool> + Send;
}

impl ClientReader for tcp::OwnedReadHalf {
    async fn has_hung_up(&self) -> bool {
        self.ready(Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed())
    }
}

impl ClientReader for unix::OwnedReadHalf {
    async fn has_hung_up(&self) -> bool {
        self.ready(Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed())
    }
}

impl Listener {
    /// Opens a socket at each place. If one cannot be opened, the others are closed again.
    pub fn open_all(places: &[Listen], access: Access) -> io::Result<Vec<Self>> {
        places.iter().map(|place| Self::open(place, access).map_err(|error| at(place, &error))).collect()
    }

    fn open(place: &Listen, access: Access) -> io::Result<Self> {
        match place {
            Listen::Unix(path) => {
                remove_stale(path)?;
                // The mask gives the file its mode when it is created. A `chmod` afterwards would come too late.
                let before = umask(Mode::from_bits_truncate(!access.socket_mode & 0o777));
                let bound = UnixListener::bind(path);
                umask(before);
                let socket = Arc::new(Socket::Unix(bound?));
                Ok(Self { socket, path: Some(path.clone()), shown: place.to_string() })
            }
            Listen::Tcp(address) => {
                let is_allowed = access.is_remote && access.has_login;
                if !is_allowed && !address.ip().is_loopback() {
                    let why = "other machines could connect there: this needs --remote and a password";
                    return Err(io::Error::new(ErrorKind::PermissionDenied, why));
                }
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let shown = listener.local_addr()?.to_string();
                Ok(Self { socket: Arc::new(Socket::Tcp(TcpListener::from_std(listener)?)), path: None, shown })
            }
        }
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> &str {
        &self.shown
    }

    /// Returns the TCP port; `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        match &*self.socket {
            Socket::Unix(_) => None,
            Socket::Tcp(listener) => listener.local_addr().ok().map(|local| local.port()),
        }
    }

    /// Accepts clients and sends them to the channel, until its receiver is gone.
    pub fn accept(&self, to: Sender<Incoming>) -> impl Future<Output = ()> + Send + use<> {
        let socket = self.socket.clone();
        async move {
            loop {
                let accepted = match &*socket {
                    Socket::Unix(listener) => listener.accept().await.map(|(stream, _)| Incoming::Unix(stream)),
                    Socket::Tcp(listener) => listener.accept().await.map(|(stream, from)| Incoming::Tcp(stream, from)),
                };
                match accepted {
                    Ok(incoming) => {
                        if let Incoming::Tcp(stream, _) = &incoming {
                            let _ = stream.set_nodelay(true);
                        }
                        if to.send(incoming).await.is_err() {
                            return;
                        }
                    }
                    // Errors such as too many open files are temporary. The pause keeps the loop from spinning.
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Incoming {
    pub fn address(&self) -> String {
        match self {
            Self::Unix(_) => "unix".to_owned(),
            Self::Tcp(_, from) => from.to_string(),
        }
    }

    /// Closes the connection. The reason is sent before if the socket takes it at once.
    pub fn refuse(self, why: &[u8]) {
        let _ = match self {
            Self::Unix(stream) => stream.try_write(why),
            Self::Tcp(stream, _) => stream.try_write(why),
        };
    }
}

/// Removes the file of a Unix socket on which nobody listens: an agent that was killed leaves it. A file of another
/// kind, or a socket in use, is an error.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file of another kind"))
        }
        Ok(_) => match StdUnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another program listens there")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Err(error) => Err(error),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Puts the place before the message of an error.
fn at(place: &Listen, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{place}: {error}"))
}

/// Raises the limit of open files to this number and 64 more, up to the hard limit. Logs if that is too low.
pub(crate) fn allow_files(wanted: usize, stats: &Stats) {
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(64);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft < wanted {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
    }
    if hard < wanted {
        stats.log(&format!("{hard} files may be open, {wanted} are needed for all clients (ulimit -n, LimitNOFILE)"));
    }
}
