//! The settings of each new connection: the address, TLS, the login, the database and the name.

mod login;
mod tls;
mod url;

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::error::Error;
pub use login::Credentials;
pub(crate) use login::Setup;
pub use tls::Tls;
use url::{Target, Url};

/// Where to begin to look for the server that has a lock.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A server, or nodes of a cluster, of which any can be asked first.
    Nodes(Vec<ConnectionInfo>),
    /// Sentinels, the name by which they know the primary, and the primary's settings. The Sentinels tell its address.
    Sentinels { sentinels: Vec<ConnectionInfo>, name: String, primary: Box<ConnectionInfo> },
}

impl Place {
    pub fn parse(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url).map_err(|why| invalid(&format!("{why} (a URL is redis://HOST:PORT)")))?;
        let login = login_of(&url);
        let at = |(host, port): &(String, u16), login: &RedisConnectionInfo| {
            info(address(host, *port, url.tls), login.clone())
        };
        match &url.target {
            Target::Nodes(hosts) => {
                Ok(Self::Nodes(hosts.iter().map(|host| at(host, &login)).collect::<Result<_, _>>()?))
            }
            Target::Sentinels { hosts, name } => Ok(Self::Sentinels {
                sentinels: hosts
                    .iter()
                    .map(|host| at(host, &RedisConnectionInfo::default()))
                    .collect::<Result<_, _>>()?,
                name: name.clone(),
                primary: Box::new(at(&("primary".to_owned(), 6379), &login)?),
            }),
            Target::Socket(path) => Ok(Self::Nodes(vec![info(ConnectionAddr::Unix(path.into()), login)?])),
        }
    }

    /// Returns the same servers, with these certificates. All of them must have TLS addresses; with `with_sentinels`,
    /// the Sentinels must, too.
    pub fn secured(self, tls: &Tls, with_sentinels: bool) -> Result<Self, Error> {
        let secured = |all: Vec<ConnectionInfo>| all.into_iter().map(|info| tls.secure(info)).collect::<Result<_, _>>();
        Ok(match self {
            Self::Nodes(nodes) => Self::Nodes(secured(nodes)?),
            Self::Sentinels { sentinels, name, primary } => {
                let primary = Box::new(tls.secure(*primary)?);
                let sentinels = if with_sentinels { secured(sentinels)? } else { sentinels };
                Self::Sentinels { sentinels, name, primary }
            }
        })
    }
}

/// Shows addresses and ports without logins, and behind the addresses of Sentinels the name of the primary.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, name) = match self {
            Self::Nodes(nodes) => (nodes, None),
            Self::Sentinels { sentinels, name, .. } => (sentinels, Some(name)),
        };
        let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        f.write_str(&addresses.join(","))?;
        name.map_or(Ok(()), |name| write!(f, "/{name}"))
    }
}

impl Place {
    /// Returns the server that another client connects to.
    pub fn of(info: &ConnectionInfo) -> Self {
        Self::Nodes(vec![prepared(info.clone())])
    }

    /// Returns the same servers, with a login and TLS settings for the Sentinels.
    pub fn with_sentinel_settings(
        self,
        login: Option<&(Option<String>, String)>,
        security: &Security,
    ) -> Result<Self, Error> {
        let (mut sentinels, name, primary) = match self {
            Self::Sentinels { sentinels, name, primary } => (sentinels, name, primary),
            place if login.is_none() && matches!(security, Security::AsServers) => return Ok(place),
            Self::Nodes(_) => return Err(invalid("there are no Sentinels: their URL is redis-sentinel://HOST/NAME")),
        };
        for info in &mut sentinels {
            if let Some((user, password)) = login {
                let mut settings = info.redis_settings().clone().set_password(password);
                if let Some(user) = user {
                    settings = settings.set_username(user);
                }
                *info = info.clone().set_redis_settings(settings);
            }
            if !matches!(security, Security::AsServers) {
                *info = with_or_without_tls(info, !matches!(security, Security::Plain))?;
            }
            if let Security::Tls(tls) = security {
                *info = tls.secure(info.clone())?;
            }
        }
        Ok(Self::Sentinels { sentinels, name, primary })
    }
}

/// Whether connections to Sentinels use TLS.
#[derive(Clone)]
pub(crate) enum Security {
    AsServers,
    Plain,
    Tls(Tls),
}

/// Returns the same host, port and login, with or without TLS.
fn with_or_without_tls(old: &ConnectionInfo, tls: bool) -> Result<ConnectionInfo, Error> {
    let (host, port) = match old.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host, port),
        _ => return Err(invalid("a Sentinel has a host and a port")),
    };
    info(address(host, *port, tls), old.redis_settings().clone())
}

fn login_of(url: &Url) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default().set_db(url.db.into());
    if let Some(user) = &url.user {
        login = login.set_username(user);
    }
    if let Some(password) = &url.password {
        login = login.set_password(password);
    }
    login
}

fn address(host: &str, port: u16, tls: bool) -> ConnectionAddr {
    match tls {
        true => ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host.to_owned(), port),
    }
}

/// Returns how to connect: with RESP3, which reports the end of a connection, and without a timeout, since a reply may
/// take as long as the wait. Keepalive notices a peer that is gone.
fn info(address: ConnectionAddr, login: RedisConnectionInfo) -> Result<ConnectionInfo, Error> {
    if !address.is_supported() {
        return Err(invalid(tls::NOT_BUILT_IN));
    }
    let info = address.into_connection_info().map_err(|error| invalid(&error.to_string()))?;
    Ok(prepared(info.set_redis_settings(login)))
}

fn prepared(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let settings = settings.set_lib_name("dlock-client", env!("CARGO_PKG_VERSION"));
    let tcp = probed(TcpSettings::default().set_nodelay(true), KEEPALIVE, KEEPALIVE / 3);
    info.set_redis_settings(settings).set_tcp_settings(tcp)
}

/// Sets keepalive: a connection without traffic is probed after `idle`, and closed when three probes, `interval` apart,
/// have got no answer. While sent data is not acknowledged, TCP does not probe. On Linux, the user timeout then closes
/// the connection after the same time, not after a quarter of an hour.
fn probed(tcp: TcpSettings, idle: Duration, interval: Duration) -> TcpSettings {
    let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(idle + interval * 3);
    tcp
}

/// Returns the same settings with other times for keepalive.
pub(crate) fn probed_after(info: ConnectionInfo, idle: Duration, interval: Duration) -> ConnectionInfo {
    let tcp = probed(info.tcp_settings().clone(), idle, interval);
    info.set_tcp_settings(tcp)
}

/// Returns the same login at another address.
pub(crate) fn at(login: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let mut addr = login.addr().clone();
    match &mut addr {
        ConnectionAddr::TcpTls { host: old_host, port: old_port, .. } => {
            host.clone_into(old_host);
            *old_port = port;
        }
        _ => addr = ConnectionAddr::Tcp(host.to_owned(), port),
    }
    login.clone().set_addr(addr)
}

fn invalid(what: &str) -> Error {
    Error::Invalid(what.to_owned())
}

/// A connection without traffic is probed after this time, and closed after twice this time without an answer.
const KEEPALIVE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Vec<String> {
        match Place::parse(url).expect(url) {
            Place::Nodes(nodes) => nodes.iter().map(|node| node.addr().to_string()).collect(),
            Place::Sentinels { sentinels, .. } => sentinels.iter().map(|node| node.addr().to_string()).collect(),
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_request_that_is_not_acknowledged_closes_its_connection_as_early_as_probes_would() {
        let Place::Nodes(nodes) = Place::parse("redis://a").expect("a URL") else { panic!("one server") };
        assert_eq!(nodes[0].tcp_settings().user_timeout(), Some(2 * KEEPALIVE));
        let second = Duration::from_secs(1);
        let rarely = probed_after(nodes[0].clone(), 50 * second, 2 * second);
        assert_eq!(rarely.tcp_settings().user_timeout(), Some(56 * second));
    }

    #[test]
    fn a_url_names_one_server_several_nodes_or_a_socket() {
        assert_eq!(addresses("redis://localhost"), ["localhost:6379"]);
        assert_eq!(addresses("valkey://u:p@a:1,b:2,[::1]:3/"), ["a:1", "b:2", "::1:3"]);
        assert_eq!(addresses("unix:///run/redis.sock"), ["/run/redis.sock"]);
    }

    #[test]
    fn sentinels_have_a_default_port_of_their_own_and_not_the_login_of_the_primary() {
        assert_eq!(addresses("redis-sentinel://a,b:7000,[::1]/main"), ["a:26379", "b:7000", "::1:26379"]);
        let url = "redis-sentinel://user:p%40ss@a/main/3";
        let Place::Sentinels { name, primary, sentinels } = Place::parse(url).expect(url) else { panic!("{url}") };
        let login = primary.redis_settings();
        assert_eq!((name.as_str(), login.db()), ("main", 3));
        assert_eq!((login.username(), login.password()), (Some("user"), Some("p@ss")));
        assert_eq!(sentinels[0].redis_settings().username(), None);
    }

    #[test]
    fn a_place_is_shown_and_printed_without_its_passwords() {
        for (url, shown) in [
            ("redis://user:s3cret@a:1,b/2", "a:1,b:6379"),
            ("redis-sentinel://user:s3cret@a,b:7000/main/3", "a:26379,b:7000/main"),
            ("unix:///run/redis.sock?pass=s3cret", "/run/redis.sock"),
        ] {
            let place = Place::parse(url).expect(url);
            assert_eq!(place.to_string(), shown);
            assert!(!format!("{place:?}").contains("s3cret"), "{place:?}");
        }
    }

    #[test]
    fn urls_that_make_no_sense_are_refused() {
        for url in
            ["localhost", "http://a", "redis://", "redis://a:x", "redis://a/x", "redis-sentinel://a", "redis://a,"]
        {
            assert!(matches!(Place::parse(url), Err(Error::Invalid(_))), "{url}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_tls_setting_of_sentinels_may_differ_from_that_of_the_primary() {
        let is_tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let ways = |url: &str, security: Security| {
            let login = (Some("user".to_owned()), "secret".to_owned());
            let place = Place::parse(url).and_then(|place| place.with_sentinel_settings(Some(&login), &security));
            let place = place.expect(url);
            let Place::Sentinels { sentinels, primary, .. } = place else { panic!("{url}") };
            assert_eq!(sentinels[0].redis_settings().password(), Some("secret"));
            assert_eq!(sentinels[0].addr().to_string(), "a:26379");
            (is_tls(&sentinels[0]), is_tls(&primary))
        };
        assert_eq!(ways("rediss-sentinel://a/main", Security::AsServers), (true, true));
        assert_eq!(ways("rediss-sentinel://a/main", Security::Plain), (false, true));
        assert_eq!(ways("redis-sentinel://a/main", Security::Tls(Tls::new())), (true, false));
    }
}
