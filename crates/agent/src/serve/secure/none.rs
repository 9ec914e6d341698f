//! No TLS: the feature `tls` is off.

use std::io::{self, Error, ErrorKind};

use tokio::net::TcpStream;

use super::options::Certificates;

/// Certificates, which this build cannot use: no value of this type exists.
#[derive(Debug)]
pub(super) enum Authority {}

/// An encrypted connection: no value of this type exists.
#[derive(Debug)]
pub(super) enum Secured {}

impl Authority {
    pub fn read(_: &Certificates) -> io::Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "TLS is not built in (feature `tls`)"))
    }

    pub fn secure(&self, _: TcpStream) -> io::Result<Secured> {
        match *self {}
    }

    pub fn reload_if_changed(&self) -> Option<String> {
        match *self {}
    }
}

impl Secured {
    pub fn socket(&self) -> &TcpStream {
        match *self {}
    }

    pub fn try_read(&self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn try_write(&self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn push(&self) -> io::Result<()> {
        match *self {}
    }

    pub fn unsent(&self) -> usize {
        match *self {}
    }

    pub fn has_read_ahead(&self) -> bool {
        match *self {}
    }

    pub fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub fn say_end(&self) {
        match *self {}
    }
}
