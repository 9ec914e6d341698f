//! The servers of a failover, and what their `INFO` says.

use std::collections::HashMap;
use std::time::Duration;

use dlock_client::{Error, Node, Operator};

use super::stop::Stop;

/// How long a server may take to reply.
pub const REPLY: Duration = Duration::from_secs(2);

/// The fields of `INFO`, by name. A field that is missing is empty, or 0 as a number.
pub struct Info(HashMap<String, String>);

/// Asks a server for its `INFO`.
pub async fn info(node: &Node) -> Result<Info, Error> {
    Ok(Info::of(&node.ask::<String>(&["INFO"], REPLY).await?))
}

impl Info {
    pub fn of(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }

    /// Returns the databases that have keys.
    pub fn databases(&self) -> Vec<u64> {
        let mut databases: Vec<u64> = self.0.keys().filter_map(|name| name.strip_prefix("db")?.parse().ok()).collect();
        databases.sort_unstable();
        databases
    }

    pub fn is_in_cluster(&self) -> bool {
        self.field("cluster_enabled") == "1"
    }

    pub fn is_primary(&self) -> bool {
        self.field("role") == "master"
    }

    pub fn is_replica(&self) -> bool {
        self.field("role") == "slave"
    }

    /// Returns whether the server is a replica that receives its primary's writes.
    pub fn follows(&self) -> bool {
        self.is_replica() && self.field("master_link_status") == "up"
    }

    /// Returns the server's offset in the replication stream. The server has executed everything before that.
    pub fn offset(&self) -> u64 {
        self.number(if self.is_replica() { "slave_repl_offset" } else { "master_repl_offset" })
    }

    /// Returns whether Sentinel never promotes the server.
    pub fn is_never_promoted(&self) -> bool {
        self.field("slave_priority") == "0"
    }

    /// Returns the address of a replica's primary.
    pub fn primary(&self) -> String {
        format!("{}:{}", self.field("master_host"), self.field("master_port"))
    }

    /// Returns the host and the port of each replica of a primary.
    pub fn replicas(&self) -> Vec<(String, u16)> {
        let lines = (0..self.number("connected_slaves")).filter_map(|at| self.0.get(&format!("slave{at}")));
        let field = |line: &str, name: &str| {
            line.split(',').find_map(|field| Some(field.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
        };
        lines.filter_map(|line| Some((field(line, "ip")?, field(line, "port")?.parse().ok()?))).collect()
    }
}

/// A primary or a replica, with the address by which the other servers know it.
pub struct Server {
    pub node: Node,
    pub host: String,
    pub port: u16,
}

impl Server {
    pub fn at(operator: &Operator, host: &str, port: u16) -> Result<Self, Stop> {
        let node = operator.server_at(host, port).ok_or_else(|| Stop::Usage("the URL names no server".to_owned()))?;
        Ok(Self { node, host: host.to_owned(), port })
    }

    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Fails unless the server can take over: it is a replica that receives the writes, and has the module.
    pub async fn check(&self) -> Result<(), Stop> {
        let address = self.address();
        let missing = |error| Stop::Kept(format!("the replica {address} does not answer: {error}"));
        let info = info(&self.node).await.map_err(missing)?;
        if !info.is_replica() {
            return Err(Stop::Kept(format!("{address} is no replica")));
        }
        if !info.follows() {
            return Err(Stop::Kept(format!("the replica {address} has no connection to its primary")));
        }
        if !has_module(&self.node).await? {
            return Err(Stop::Kept(format!("the replica {address} has no dlock module")));
        }
        Ok(())
    }
}

/// Returns whether the server has the commands of the module.
pub async fn has_module(node: &Node) -> Result<bool, Error> {
    let found: Vec<String> = node.ask(&["COMMAND", "LIST", "FILTERBY", "PATTERN", "dlock.acquire"], REPLY).await?;
    Ok(!found.is_empty())
}

/// Returns the replica of a primary that has received most, or the one that the user has named. Fails without one.
pub async fn best(operator: &Operator, primary: &Info, named: Option<&(String, u16)>) -> Result<Server, Stop> {
    let mut best: Option<(u64, Server)> = None;
    for (host, port) in primary.replicas() {
        if named.is_some_and(|(its_host, its_port)| (its_host, *its_port) != (&host, port)) {
            continue;
        }
        let replica = Server::at(operator, &host, port)?;
        let Ok(info) = info(&replica.node).await else { continue };
        if info.follows() && best.as_ref().is_none_or(|(offset, _)| *offset < info.offset()) {
            best = Some((info.offset(), replica));
        }
    }
    let none = || match named {
        Some((host, port)) => Stop::Kept(format!("the primary has no replica {host}:{port} that follows it")),
        None => Stop::Kept("the primary has no replica that follows it and can take over".to_owned()),
    };
    best.map(|(_, replica)| replica).ok_or_else(none)
}

/// Reads `HOST:PORT`, with the brackets of an IPv6 address or without.
pub fn address(text: &str) -> Result<(String, u16), String> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() => {
            Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
        }
        _ => Err("an address is HOST:PORT".to_owned()),
    }
}
