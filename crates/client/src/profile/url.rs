//! The meaning of a URL: every part of the URL is understood, or the URL is refused. The table
//! `tests/clients/tables/urls.txt` defines which URLs are refused, and what the others mean.
//!
//! ```text
//! redis://[user:password@]host[:port][,host[:port]…][/db]            a server; one or more nodes of a cluster
//! redis-sentinel://[user:password@]host[:port][,…]/name[/db]         the primary of that name, as Sentinel says
//! unix://[user:password@]/path/to/socket
//! ```
//!
//! `rediss` is `redis` with TLS. `valkey` means the same as `redis`, and `valkeys` the same as `rediss`. The query may
//! also name the database (`?db=2`) and the login (`?username=…&password=…`).

/// A URL that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub target: Target,
    pub tls: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: u32,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Nodes(Vec<(String, u16)>),
    Sentinels { hosts: Vec<(String, u16)>, name: String },
    Socket(String),
}

/// The parts of a URL, none of them decoded.
struct Parts<'a> {
    login: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

impl Url {
    /// Reads a URL. The error says what is wrong with it, without its password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("a URL has no blanks: one is written %20".to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or("a URL is redis://HOST:PORT")?;
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, is_sentinel) = match scheme.strip_suffix("-sentinel") {
            Some(scheme) => (scheme, true),
            None => (scheme.as_str(), false),
        };
        let (is_socket, tls) = match scheme {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (false, true),
            "unix" | "redis+unix" | "valkey+unix" if !is_sentinel => (true, false),
            _ => return Err("the scheme of a URL is redis, rediss, valkey, valkeys, unix or redis-sentinel".to_owned()),
        };
        let parts = Parts::of(rest)?;
        let (mut user, mut password) = parts.login.map_or(Ok((None, None)), login)?;
        let mut query = Query::of(parts.query)?;
        for (known, words) in [(&mut user, ["username", "user"]), (&mut password, ["password", "pass"])] {
            for word in words {
                if let Some(value) = query.take(word)? {
                    if known.as_ref().is_some_and(|known| *known != value) {
                        return Err(format!("a URL that names two of {word}"));
                    }
                    *known = Some(value).filter(|value| !value.is_empty());
                }
            }
        }
        // A user without a password needs none. An empty password logs in as this user, instead of the default one.
        if user.is_some() {
            password.get_or_insert_default();
        }
        let asked = query.take("db")?.map(|value| database(&value)).transpose()?;
        query.refuse_rest()?;
        let (target, named) = match (is_socket, is_sentinel) {
            (true, _) => (socket(&parts)?, None),
            (_, true) => sentinels(&parts)?,
            _ => (Target::Nodes(hosts(parts.hosts, 6379)?), in_path(parts.path.trim_matches('/'))?),
        };
        let db = match (named, asked) {
            (Some(one), Some(other)) if one != other => return Err("a URL that names two databases".to_owned()),
            (named, asked) => named.or(asked).unwrap_or(0),
        };
        Ok(Self { target, tls, user, password, db })
    }
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Result<Self, String> {
        if rest.contains('#') {
            return Err("a URL has no # (in a password, # is %23); #insecure is refused, too".into());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        if login.is_some_and(|login| login.contains('@') && login.contains(',')) {
            return Err("a URL has one login, before its first host".to_owned());
        }
        Ok(Self { login, hosts, path, query })
    }
}

/// The words after the question mark.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (word, value) = pair.split_once('=').ok_or_else(|| Self::wrong("has no value"))?;
            // Some parsers read + as a blank.
            if value.contains('+') {
                return Err(Self::wrong("has a +, which is %2B there"));
            }
            pairs.push((word.to_owned(), decoded(value)?));
        }
        Ok(Self(pairs))
    }

    /// Returns an error without the word, which may be a part of a password in which `?` or `&` is not escaped.
    fn wrong(why: &str) -> String {
        format!("a word behind ? {why} (in a password, ? is %3F, and & is %26)")
    }

    /// Removes a word, and returns its value. Fails if the query has the word twice.
    fn take(&mut self, word: &str) -> Result<Option<String>, String> {
        let Some(at) = self.0.iter().position(|(known, _)| known == word) else { return Ok(None) };
        let (_, value) = self.0.swap_remove(at);
        if self.0.iter().any(|(known, _)| known == word) {
            return Err(format!("a URL with two of ?{word}="));
        }
        Ok(Some(value))
    }

    fn refuse_rest(&self) -> Result<(), String> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Self::wrong("is not understood: db, username and password are")),
        }
    }
}

/// Returns user and password; `None` for an empty one.
fn login(text: &str) -> Result<(Option<String>, Option<String>), String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let given = |text: &str| decoded(text).map(|text| Some(text).filter(|text| !text.is_empty()));
    Ok((given(user)?, given(password)?))
}

fn hosts(text: &str, port: u16) -> Result<Vec<(String, u16)>, String> {
    text.split(',').map(|host| address(host, port)).collect()
}

/// Returns host and port; the host without the brackets of an IPv6 address.
fn address(text: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a URL with no ] behind an address in [ ]")?;
            // The error does not show the text, which may be a part of a password with a slash.
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("a URL with no IPv6 address in [ ]".to_owned());
            }
            match port {
                "" => (host, None),
                port => (host, Some(port.strip_prefix(':').ok_or("a URL with something else than :PORT behind ]")?)),
            }
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(is_name) {
        return Err("a URL without a host, or with one that is no name".to_owned());
    }
    // Only digits are allowed, because `parse` would also take a sign.
    let port = match port {
        None => Some(default),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        Some(_) => None,
    };
    let port = port.filter(|port| *port > 0).ok_or("a URL with a port that is no number from 1 to 65535")?;
    Ok((host.to_owned(), port))
}

fn sentinels(parts: &Parts<'_>) -> Result<(Target, Option<u32>), String> {
    let path = parts.path.strip_prefix('/').unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.contains('@') {
        return Err("a URL with @ in the name of the primary (in a password, / is %2F)".to_owned());
    }
    if name.is_empty() {
        return Err("a Sentinel URL ends with the name of the primary: redis-sentinel://HOST:26379/NAME".to_owned());
    }
    Ok((Target::Sentinels { hosts: hosts(parts.hosts, 26379)?, name: decoded(name)? }, in_path(db)?))
}

fn socket(parts: &Parts<'_>) -> Result<Target, String> {
    if !parts.hosts.is_empty() || parts.path.trim_matches('/').is_empty() {
        return Err("a socket is unix:///path/to/socket".to_owned());
    }
    Ok(Target::Socket(decoded(parts.path)?))
}

fn in_path(text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() { Ok(None) } else { database(text).map(Some) }
}

fn database(text: &str) -> Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| "the database of a URL is a number (redis://HOST/2)".to_owned())
}

/// Decodes escapes like `%40`.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "a % in a URL is followed by two hexadecimal digits (% itself is %25)".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, others)) = rest.split_first() {
        rest = others;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, others) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let [high, low] = digits else { return Err(wrong()) };
        let (high, low) = digit(high).zip(digit(low)).ok_or_else(wrong)?;
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
        rest = others;
    }
    String::from_utf8(bytes).map_err(|_| "the bytes that % stands for in a URL must be UTF-8".to_owned())
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;

    /// Returns the meaning of a URL in the form of the table.
    fn outcome(text: &str) -> String {
        let Ok(url) = Url::parse(text) else { return "refused".to_owned() };
        let shown = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let mut words = match &url.target {
            Target::Nodes(hosts) => hosts.iter().map(shown).collect(),
            Target::Sentinels { hosts, name } => {
                hosts.iter().map(shown).chain([format!("primary={name}")]).collect::<Vec<_>>()
            }
            Target::Socket(path) => vec![path.clone()],
        };
        words.extend(url.tls.then(|| "tls".to_owned()));
        words.extend(url.user.map(|user| format!("user={user}")));
        words.extend(url.password.map(|password| format!("password={password}")));
        words.push(format!("db={}", url.db));
        words.join(" ")
    }

    #[test]
    fn every_row_of_the_table_is_understood_as_it_says_or_refused() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/tables/urls.txt");
        let table = std::fs::read_to_string(path).expect("the table");
        let (mut rows, mut wrong) = (0, Vec::new());
        for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (_, row) = line.split_once('"').expect(line);
            let (url, expected) = row.split_once("\" => ").expect(line);
            let url = url.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r");
            let found = outcome(&url);
            rows += 1;
            if found != expected {
                wrong.push(format!("{url:?}: {found}, not {expected}"));
            }
        }
        assert!(wrong.is_empty() && rows > 100, "{rows} rows\n{}", wrong.join("\n"));
    }

    #[test]
    fn an_error_does_not_tell_the_password() {
        for url in [
            "redis://u:s3cret@a:x",
            "redis://u:s3cret@a?x=1",
            "redis://u:s3cret/x@a",
            "http://u:s3cret@a",
            "redis://u:pa?s3cret@a",
            "redis://u:pa?s3cret=b@a",
            "redis://a?password=b&s3cret",
            "redis://a?password=b&s3cret=c",
            "redis://u:[s3cret/x@a",
            "redis://:[s3cret]x/x@a",
            "redis-sentinel://u:1/s3cret@a/main",
            "redis-sentinel://u:1/s3cret@a/1",
            "redis://u:12,s3cret:x/y@a",
            "redis://u:pa?s3cret",
        ] {
            let why = Url::parse(url).expect_err(url);
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
