//! Servers with TLS, and certificates for them.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::process::free_port;
use crate::{Server, Setup};

/// A private certificate authority, and the files of the certificates that it has signed.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    files: tempfile::TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of the tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
        let authority = Self { issuer, files: tempfile::tempdir().expect("a temporary directory") };
        fs::write(authority.file("ca.pem"), authority.pem()).expect("a writable directory");
        authority
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns the path of a file. The authority's own certificate is `ca.pem`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Makes a certificate for this name or address, and its key. Returns both, and writes them to `NAME.crt` and
    /// `NAME.key`.
    pub fn sign(&self, name: &str) -> [String; 2] {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pair = [params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem()];
        for (pem, kind) in pair.iter().zip(["crt", "key"]) {
            fs::write(self.file(&format!("{name}.{kind}")), pem).expect("a writable directory");
        }
        pair
    }

    /// Returns a free port, and the configuration of a server with TLS on that port and a certificate for this name.
    pub fn conf(&self, name: &str) -> (u16, String) {
        self.sign(name);
        let [ca, cert, key] =
            ["ca.pem".to_owned(), format!("{name}.crt"), format!("{name}.key")].map(|f| self.file(&f));
        let port = free_port();
        let conf = format!(
            "tls-port {port}\ntls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}",
            ca.display(),
            cert.display(),
            key.display()
        );
        (port, conf)
    }

    /// Starts a server with a certificate for this name. Returns the server and its TLS port. If the server was built
    /// without TLS, prints that and returns `None`.
    pub fn server(&self, name: &str, conf: &str) -> Option<(Server, u16)> {
        let (port, certificates) = self.conf(name);
        match Setup::new().conf(conf).conf(&certificates).try_start() {
            Ok(server) => Some((server, port)),
            Err(log) if log.contains("Bad directive") => {
                eprintln!("not on this server: it was built without TLS");
                None
            }
            Err(log) => panic!("the server did not start:\n{log}"),
        }
    }
}

/// The setting of a server that asks clients for no certificate.
pub const ANYBODY: &str = "tls-auth-clients no";
