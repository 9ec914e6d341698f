//! The agent's page for Prometheus.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::http::serve_metrics;
use crate::shared::Shared;

/// Opens the socket of the page. An error names the address.
pub(crate) async fn open(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}

/// Serves the page, forever.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let page = move || {
        let shared = shared.clone();
        async move { shared.page() }
    };
    serve_metrics(listener, PATIENCE, page).await;
}

/// How long making the page may take.
const PATIENCE: Duration = Duration::from_secs(1);
