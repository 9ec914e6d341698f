//! ZooKeeper, with the settings of its administrator's guide. `forceSync` stays on: writes are synced.

use std::fs;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client::Client;

use super::{Servers, answers, folder};
use crate::processes::{Process, free_ports};
use crate::result::{Result, failed};

/// Starts an ensemble of up to three servers, and waits until all of them serve clients.
pub async fn start(nodes: usize) -> Result<Servers> {
    let folder = folder()?;
    let (client_ports, peer_ports, election_ports) = (free_ports::<3>()?, free_ports::<3>()?, free_ports::<3>()?);
    let mut ensemble = String::new();
    if nodes > 1 {
        for (at, (peer, election)) in peer_ports.iter().zip(election_ports).take(nodes).enumerate() {
            ensemble += &format!("server.{}=127.0.0.1:{peer}:{election}\n", at + 1);
        }
    }
    let mut processes = Vec::new();
    let mut addresses = Vec::new();
    for (at, port) in client_ports.iter().take(nodes).enumerate() {
        let home = folder.path().join(at.to_string());
        let data = home.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), (at + 1).to_string())?;
        let config = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             dataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\n{ensemble}",
            data.display()
        );
        let file = home.join("zoo.cfg");
        fs::write(&file, config)?;
        let heap = "-Xmx1000m";
        let command = [
            "java",
            heap,
            "-cp",
            CLASSES,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &file.to_string_lossy(),
        ];
        processes.push(Process::start(&command.map(str::to_owned), None, &home.join("log"))?);
        addresses.push(format!("127.0.0.1:{port}"));
    }
    let mut version = String::new();
    for address in &addresses {
        version = answers(&mut processes, || said(address)).await?;
    }
    Ok(Servers::new(processes, addresses, version, folder))
}

/// Returns the version of the server, once it serves clients.
async fn said(address: &str) -> Result<String> {
    let text = status(address).await?;
    let version = text.lines().find_map(|line| line.strip_prefix("Zookeeper version: ")?.split(['-', ',']).next());
    let Some(version) = version else { return failed("it does not serve yet") };
    Client::connector().with_session_timeout(Duration::from_secs(4)).connect(address).await?;
    Ok(format!("ZooKeeper {version}"))
}

/// Returns the answer to the four-letter word `srvr`.
async fn status(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"srvr").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Returns the index of the leader's address.
pub async fn leader(addresses: &[String]) -> Result<usize> {
    for (at, address) in addresses.iter().enumerate() {
        if status(address).await?.contains("Mode: leader") {
            return Ok(at);
        }
    }
    failed("no leader")
}

/// The class path of Debian's package.
const CLASSES: &str = "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar";
