//! The certificates of TLS connections: the trusted authorities, and the client's own.

use std::fmt;

use redis::ConnectionInfo;

use crate::error::Error;

/// Certificates for `rediss://` (feature `tls`), each of them PEM: for [`Client::open_with_tls`],
/// [`ClientBuilder::tls`], [`ClientBuilder::sentinel_tls`] and [`QuorumBuilder::tls`]. Unless set, the client trusts
/// the authorities that the system trusts, and shows no certificate.
///
/// [`Client::open_with_tls`]: crate::Client::open_with_tls
/// [`ClientBuilder::tls`]: crate::ClientBuilder::tls
/// [`ClientBuilder::sentinel_tls`]: crate::ClientBuilder::sentinel_tls
/// [`QuorumBuilder::tls`]: crate::QuorumBuilder::tls
#[derive(Clone, Default)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "nothing uses certificates then"))]
pub struct Tls {
    ca: Option<Vec<u8>>,
    /// Certificate and key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Returns settings in which nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificate authorities, one or more, and no others.
    pub fn ca(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(certificates.into());
        self
    }

    /// Shows this certificate to servers that ask for one (`tls-auth-clients`), with the chain that leads to their
    /// authority if there is one. `key` is its private key.
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Returns the same settings with these certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn secure(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        use redis::{Client, ClientTlsConfig, TlsCertificates};
        use rustls::pki_types::{CertificateDer, pem::PemObject};

        let is_empty = |pem: &Vec<u8>| CertificateDer::pem_slice_iter(pem).next().is_none();
        if self.ca.iter().chain(self.identity.iter().map(|(certificate, _)| certificate)).any(is_empty) {
            return Err(Error::Invalid("there is no certificate in what should be one (PEM)".to_owned()));
        }
        let identity = self.identity.clone();
        let certificates = TlsCertificates {
            client_tls: identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
            root_cert: self.ca.clone(),
        };
        let client = Client::build_with_tls(info, certificates).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(client.get_connection_info().clone())
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn secure(&self, _: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        Err(Error::Invalid(NOT_BUILT_IN.to_owned()))
    }
}

/// Shows no keys.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

pub(crate) const NOT_BUILT_IN: &str = "TLS is not built in (feature `tls`)";
