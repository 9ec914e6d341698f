//! PostgreSQL as `initdb` makes it, with room for a thousand connections. It refuses to run as root.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};

use super::{Servers, answers, folder};
use crate::processes::{Process, free_ports};
use crate::result::{Result, failed};

pub async fn start() -> Result<Servers> {
    let folder = folder()?;
    let home = folder.path().join("postgres");
    fs::create_dir(&home)?;
    let mut user = None;
    if geteuid().is_root() {
        let Some(found) = User::from_name("postgres")? else { return failed("no user postgres: scripts/setup peers") };
        chown(&home, Some(found.uid), Some(found.gid))?;
        user = Some(found.name);
    }
    let programs = programs()?;
    let data = home.join("data").to_string_lossy().into_owned();
    let mut initdb = Command::new(if user.is_some() { "runuser" } else { "env" });
    if let Some(user) = &user {
        initdb.args(["-u", user, "--"]);
    }
    initdb.arg(programs.join("initdb")).args(["--auth=trust", "--username=postgres", "--pgdata", &data]);
    let output = initdb.current_dir("/").output()?;
    if !output.status.success() {
        return failed(format!("initdb: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let [port] = free_ports()?;
    let command = [
        programs.join("postgres").to_string_lossy().into_owned(),
        "-D".to_owned(),
        data,
        "-c".to_owned(),
        "listen_addresses=127.0.0.1".to_owned(),
        "-c".to_owned(),
        format!("port={port}"),
        "-c".to_owned(),
        format!("unix_socket_directories={}", home.display()),
        "-c".to_owned(),
        "max_connections=1100".to_owned(),
        // Above the longest wait, as its manual advises: a check walks through all who wait.
        "-c".to_owned(),
        "deadlock_timeout=2min".to_owned(),
    ];
    let mut processes = vec![Process::start(&command, user.as_deref(), &folder.path().join("log"))?];
    let address = format!("127.0.0.1:{port}");
    let version = answers(&mut processes, || said(&address)).await?;
    let mut servers = Servers::new(processes, vec![address], version, folder);
    // "Immediate shutdown": the processes that the server has forked end with it, which `kill -9` would leave.
    servers.stops_by = Signal::SIGQUIT;
    Ok(servers)
}

/// The newest version that is installed.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").map_err(|_| "no PostgreSQL here: scripts/setup peers")?;
    let versions = versions.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    match versions.max() {
        Some(version) => Ok(PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"))),
        None => failed("no PostgreSQL here: scripts/setup peers"),
    }
}

async fn said(address: &str) -> Result<String> {
    let client = crate::clients::postgres::connect(address).await?;
    let row = client.query_one("SHOW server_version", &[]).await?;
    let version: &str = row.get(0);
    Ok(format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()))
}
