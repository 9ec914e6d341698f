//! A proxy of a server that can hold back requests and replies.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Decides whether to hold back a piece of a stream, and all that follows it.
pub type Holds = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Opens a gate to a server, and returns its port. Requests that are held back never arrive, nor do later ones.
pub fn gate(server: u16, holds: impl Fn(&str) -> bool + Send + Sync + 'static) -> u16 {
    open(server, Arc::new(holds), Arc::new(|_| false))
}

/// Opens a gate that holds back what the server sends.
pub fn gate_of_replies(server: u16, holds: impl Fn(&str) -> bool + Send + Sync + 'static) -> u16 {
    open(server, Arc::new(|_| false), Arc::new(holds))
}

/// Opens a gate that holds back requests and replies.
pub fn open(server: u16, holds_requests: Holds, holds_replies: Holds) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A server that has ended accepts no connection.
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (to_client, from_server) = (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
            let (holds_requests, holds_replies) = (holds_requests.clone(), holds_replies.clone());
            std::thread::spawn(move || carry(client, server, &holds_requests));
            std::thread::spawn(move || carry(from_server, to_client, &holds_replies));
        }
    });
    port
}

fn carry(mut from: TcpStream, mut to: TcpStream, holds: &Holds) {
    let mut buffer = [0; 16_384];
    let mut is_held = false;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        is_held = is_held || holds(&String::from_utf8_lossy(&buffer[..length]));
        if !is_held && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
