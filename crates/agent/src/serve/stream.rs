//! A client's connection, which is read and written without waiting.

use std::io;

use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

use super::secure::{Authority, Secured};
use crate::listen::Incoming;

/// A client's connection.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<Secured>),
}

impl Stream {
    /// Returns the connection of a client. With an authority, which has the certificates, TCP connections speak TLS.
    pub fn new(incoming: Incoming, authority: Option<&Authority>) -> io::Result<Self> {
        Ok(match (incoming, authority) {
            (Incoming::Unix(stream), _) => Self::Unix(stream),
            (Incoming::Tcp(stream, _), None) => Self::Tcp(stream),
            (Incoming::Tcp(stream, _), Some(authority)) => Self::Tls(Box::new(authority.secure(stream)?)),
        })
    }

    /// Returns the server's own address on this connection.
    pub fn local(&self) -> String {
        let address = match self {
            Self::Unix(_) => return "unix".to_owned(),
            Self::Tcp(stream) => stream.local_addr(),
            Self::Tls(stream) => stream.socket().local_addr(),
        };
        address.map(|local| local.to_string()).unwrap_or_default()
    }

    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_read(to),
            Self::Tcp(stream) => stream.try_read(to),
            Self::Tls(stream) => stream.try_read(to),
        }
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Sends what was written and not sent yet, which only TLS keeps, as far as the socket takes it.
    pub fn push(&self) -> io::Result<()> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
            Self::Tls(stream) => stream.push(),
        }
    }

    /// Returns how many bytes were written and not sent yet.
    pub fn unsent(&self) -> usize {
        match self {
            Self::Unix(_) | Self::Tcp(_) => 0,
            Self::Tls(stream) => stream.unsent(),
        }
    }

    /// Returns whether there are bytes to read although the socket has none: TLS has read them with earlier ones.
    pub fn has_read_ahead(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_read_ahead())
    }

    /// Returns whether the TLS handshake has not finished yet.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_handshaking())
    }

    /// Tells a client that speaks TLS that no more will be sent.
    pub fn say_end(&self) {
        if let Self::Tls(stream) = self {
            stream.say_end();
        }
    }

    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Unix(stream) => stream.ready(interest).await,
            Self::Tcp(stream) => stream.ready(interest).await,
            Self::Tls(stream) => stream.socket().ready(interest).await,
        }
    }
}
