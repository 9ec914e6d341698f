//! etcd, with the flags of its clustering guide and every other setting as it comes.

use etcd_client::Client;

use super::{Servers, answers, folder, variable};
use crate::processes::{Process, free_ports};
use crate::result::Result;

pub async fn start(nodes: usize) -> Result<Servers> {
    let folder = folder()?;
    let (client_ports, peer_ports) = (free_ports::<3>()?, free_ports::<3>()?);
    let cluster: Vec<String> =
        peer_ports.iter().take(nodes).enumerate().map(|(at, port)| format!("n{at}=http://127.0.0.1:{port}")).collect();
    let cluster = cluster.join(",");
    let mut processes = Vec::new();
    let mut addresses = Vec::new();
    for (at, (client_port, peer_port)) in client_ports.iter().zip(peer_ports).take(nodes).enumerate() {
        let data = folder.path().join(format!("n{at}"));
        let (client_url, peer_url) =
            (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
        let flags = [
            ("--name", format!("n{at}")),
            ("--data-dir", data.to_string_lossy().into_owned()),
            ("--listen-client-urls", client_url.clone()),
            ("--advertise-client-urls", client_url),
            ("--listen-peer-urls", peer_url.clone()),
            ("--initial-advertise-peer-urls", peer_url),
            ("--initial-cluster", cluster.clone()),
            ("--initial-cluster-state", "new".to_owned()),
        ];
        let mut command = vec![variable("DLOCK_ETCD")?];
        command.extend(flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        processes.push(Process::start(&command, None, &folder.path().join(format!("log{at}")))?);
        addresses.push(format!("127.0.0.1:{client_port}"));
    }
    let mut version = String::new();
    for address in &addresses {
        version = answers(&mut processes, || said(address)).await?;
    }
    Ok(Servers::new(processes, addresses, version, folder))
}

/// Returns the version of the server, once the cluster takes writes.
async fn said(address: &str) -> Result<String> {
    let mut client = Client::connect([address], None).await?;
    client.put("ready", "1", None).await?;
    Ok(format!("etcd {}", client.status().await?.version()))
}

/// Returns the place of the leader among the addresses.
pub async fn leader(addresses: &[String]) -> Result<usize> {
    for (at, address) in addresses.iter().enumerate() {
        let status = Client::connect([address], None).await?.status().await?;
        if status.header().is_some_and(|header| header.member_id() == status.leader()) {
            return Ok(at);
        }
    }
    Err("no leader".into())
}
