//! How the agent listens, and for whom.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// An address: of loopback, unless [`Options::remote`] is set.
    Tcp(SocketAddr),
}

/// The user and the password that clients must log in with (`AUTH`), on Unix sockets, too.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// The password.
    pub password: String,
}

/// How the agent runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// The permissions of a Unix socket.
    pub socket_mode: u32,
    /// Whether an address may be one that other machines reach. Needs a login.
    pub remote: bool,
    /// The user that may use it. `None`: every client that can connect.
    pub login: Option<Login>,
    /// How many clients may be connected.
    pub max_clients: usize,
    /// How many locks may be held over a quorum.
    pub max_holds: usize,
    /// After how long a silent client is disconnected. `None`: never, because a connection may be a session.
    pub idle: Option<Duration>,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Whether to leave locks to their leases when the agent stops, instead of releasing them.
    pub keep: bool,
    /// Whether to log each client that connects and leaves.
    pub verbose: bool,
}

/// The conditions on which clients may connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The permissions of a Unix socket.
    pub socket_mode: u32,
    /// Whether other machines may, if there is a login.
    pub is_remote: bool,
    pub has_login: bool,
}

impl Options {
    /// Returns options to listen on these addresses. Unless set otherwise, sockets are for this user only, without a
    /// login, for 4,096 clients and 20,000 locks.
    pub fn new(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            socket_mode: 0o600,
            remote: false,
            login: None,
            max_clients: 4096,
            max_holds: 20_000,
            idle: None,
            metrics: None,
            keep: false,
            verbose: false,
        }
    }
}

impl Options {
    pub(crate) fn access(&self) -> Access {
        Access { socket_mode: self.socket_mode, is_remote: self.remote, has_login: self.login.is_some() }
    }
}

impl FromStr for Listen {
    type Err = String;

    /// Reads `unix:/path` or `127.0.0.1:6390`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs a path".to_owned()),
            Some(path) => Ok(Self::Unix(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))),
            None => {
                let text = text.strip_prefix("tcp:").unwrap_or(text);
                let address = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
                let address = address.as_deref().unwrap_or(text).parse();
                address.map(Self::Tcp).map_err(|_| "unix:/path/to/socket or 127.0.0.1:6390".to_owned())
            }
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// Shows the user only.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    /// Compares in a time that does not depend on how much is right.
    pub(crate) fn is(&self, user: &[u8], password: &[u8]) -> bool {
        let same = |one: &[u8], other: &[u8]| {
            let differing = one.iter().zip(other.iter().cycle()).fold(0, |sum, (one, other)| sum | (one ^ other));
            differing == 0 && one.len() == other.len()
        };
        // Compares both, always.
        same(user, self.user.as_bytes()) & same(password, self.password.as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_is_a_path_or_an_ip_address_with_a_port() {
        for (text, place) in [
            ("unix:/run/dlock.sock", "unix:/run/dlock.sock"),
            ("unix:///run/dlock.sock", "unix:/run/dlock.sock"),
            ("127.0.0.1:6390", "127.0.0.1:6390"),
            ("localhost:6390", "127.0.0.1:6390"),
            ("[::1]:6390", "[::1]:6390"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), place);
        }
        for text in ["", "unix:", "6390", "/run/dlock.sock", "example.com:1"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_login_is_user_and_password() {
        let login = Login { user: "a".to_owned(), password: "secret".to_owned() };
        assert!(login.is(b"a", b"secret"));
        for (user, password) in [("a", "secre"), ("a", "secrets"), ("b", "secret"), ("", ""), ("a", "")] {
            assert!(!login.is(user.as_bytes(), password.as_bytes()), "{user} {password}");
        }
        assert!(!format!("{login:?}").contains("secret"));
    }
}
