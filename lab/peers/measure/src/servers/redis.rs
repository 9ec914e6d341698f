//! Redis servers, with dlock where dlock is measured.

use std::fs;
use std::path::Path;

use dlock_comparison::systems::Made;
use redis::{Client, Value, cmd};

use super::{Servers, answers, folder, variable};
use crate::processes::{Process, free_ports};
use crate::result::Result;

/// Starts independent servers. They have the module, unless Redlock is measured.
pub async fn start(made: Made, nodes: usize, on_disk: bool) -> Result<Servers> {
    let folder = folder()?;
    let ports = free_ports::<3>()?;
    let persistence: &[&str] = match (on_disk, nodes) {
        (true, _) => &["--appendonly", "yes", "--appendfsync", "always"],
        (false, _) => &["--appendonly", "no"],
    };
    let mut processes = Vec::new();
    for (number, port) in ports.iter().take(nodes).enumerate() {
        processes.push(server(&folder.path().join(number.to_string()), *port, made != Made::Redlock, persistence)?);
    }
    let addresses: Vec<String> = ports.iter().take(nodes).map(|port| format!("127.0.0.1:{port}")).collect();
    let mut version = String::new();
    for address in &addresses {
        version = answers(&mut processes, || said(address)).await?;
    }
    let mut servers = Servers::new(processes, addresses, version, folder);
    if made == Made::DlockQuorum {
        wait_until_counted(&mut servers, on_disk).await?;
    }
    Ok(servers)
}

/// Starts a primary with one replica.
pub async fn start_with_replica() -> Result<Servers> {
    let folder = folder()?;
    let [primary, replica] = free_ports()?;
    let of = primary.to_string();
    let mut processes = vec![
        server(&folder.path().join("0"), primary, true, &["--appendonly", "no"])?,
        server(&folder.path().join("1"), replica, true, &["--appendonly", "no", "--replicaof", "127.0.0.1", &of])?,
    ];
    let address = format!("127.0.0.1:{primary}");
    let version = answers(&mut processes, || said(&address)).await?;
    answers(&mut processes, || replicated(&address)).await?;
    Ok(Servers::new(processes, vec![address], version, folder))
}

fn server(folder: &Path, port: u16, with_module: bool, settings: &[&str]) -> Result<Process> {
    fs::create_dir_all(folder)?;
    let mut command = vec![variable("DLOCK_SERVER")?];
    let dir = folder.to_string_lossy().into_owned();
    let port = port.to_string();
    command.extend(["--bind", "127.0.0.1", "--port", &port, "--dir", &dir, "--save", ""].map(str::to_owned));
    // The sync of a replica begins at once. It is diskless by default: a file would count as written for locks.
    command.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
    command.extend(settings.iter().map(|word| (*word).to_owned()));
    if with_module {
        command.extend(["--loadmodule".to_owned(), variable("DLOCK_MODULE")?]);
    }
    Process::start(&command, None, &folder.join("log"))
}

/// Returns the names and versions of the server and, if it has one, of the module.
async fn said(address: &str) -> Result<String> {
    let mut connection = Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await?;
    let info: String = cmd("INFO").query_async(&mut connection).await?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let server = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {}", version.trim()),
        (None, version) => format!("Redis {}", version.unwrap_or_default().trim()),
    };
    Ok(match field("dlock_version") {
        Some(version) => format!("dlock {} on {server}", version.trim()),
        None => server,
    })
}

/// Fails unless a replica confirms a write.
async fn replicated(address: &str) -> Result<()> {
    let mut connection = Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await?;
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg("replicated").arg(1).cmd("WAIT").arg(1).arg(100);
    let (_, confirmed): (Value, u64) = pipe.query_async(&mut connection).await?;
    if confirmed == 1 { Ok(()) } else { Err("the replica does not confirm".into()) }
}

/// Waits until a majority of the members counts: one without persistence counts after the longest lease.
async fn wait_until_counted(servers: &mut Servers, on_disk: bool) -> Result<()> {
    let quorum = crate::clients::quorum::Quorum::open(&servers.addresses, on_disk, 1)?;
    let quorum = &quorum;
    answers(&mut servers.processes, || async move { quorum.answers().await }).await?;
    if !on_disk {
        // After one more second, the member that started last counts, too.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    Ok(())
}
