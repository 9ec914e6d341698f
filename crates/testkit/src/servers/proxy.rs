//! A network between client and server that is slow, loses tokens and other integers on the way back, or goes dead
//! without a word.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::Server;

/// Forwards connections to a server. A test can keep back the replies that are integers, or what the present connections
/// carry. The proxy reads what it keeps back, and does not pass it on. New connections are always made.
pub struct Proxy {
    port: u16,
    network: Arc<Network>,
}

#[derive(Default)]
struct Network {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The port of the server that new connections lead to.
    target: u16,
    keeps_integers: bool,
    /// Commands of the connections before this one are kept.
    keeps_before: usize,
    /// Commands with this word are kept.
    keeps: Option<&'static str>,
    /// How many commands with that word have come.
    kept: usize,
    /// The next connection that carries the first word is stranded: see [`Proxy::strand`].
    strands: Option<(&'static str, &'static str)>,
    /// Whether a connection is stranded: its commands have not arrived.
    is_stranded: bool,
    /// Everything of the connections before this one is kept, also their ends.
    silent_before: usize,
    /// The next command with the word has this reply in place of its own.
    says: Option<(&'static str, &'static str)>,
    /// The connection whose next reply that is.
    lies_on: Option<(usize, &'static str)>,
    /// How long replies take, and how long the server does not hear that the client has ended a connection.
    replies_take: Duration,
    ends_take: Duration,
    /// How many connections were made. A connection's number is how many there were before it.
    made: usize,
    connections: Vec<TcpStream>,
}

impl Proxy {
    pub fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let network = Arc::new(Network::default());
        let shared = network.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let target = shared.state.lock().expect("a lock").target;
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", target))) else { continue };
                shared.join(client, server);
            }
        });
        let proxy = Self { port, network };
        proxy.lead_to(server);
        proxy
    }

    /// New connections lead to that server.
    pub fn lead_to(&self, server: &Server) {
        self.network.state.lock().expect("a lock").target = server.port();
    }

    /// The present connections carry nothing any more, and nobody is told: as if a firewall had forgotten them.
    pub fn forget_connections(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        state.silent_before = state.made;
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Integers come no more from now on.
    pub fn keep_integers(&self) {
        self.network.state.lock().expect("a lock").keeps_integers = true;
    }

    /// Commands on the present connections arrive no more from now on.
    pub fn keep_commands(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        state.keeps_before = state.made;
    }

    /// Commands with this word arrive no more from now on, and what follows them on their connections.
    pub fn keep_from(&self, word: &'static str) {
        let mut state = self.network.state.lock().expect("a lock");
        (state.keeps, state.kept) = (Some(word), 0);
    }

    /// Returns how many commands have come that are kept for their word.
    pub fn kept(&self) -> usize {
        self.network.state.lock().expect("a lock").kept
    }

    /// The next connection whose commands have these words breaks for the client behind the second one. They arrive when
    /// they are delivered.
    pub fn strand(&self, from: &'static str, to: &'static str) {
        self.network.state.lock().expect("a lock").strands = Some((from, to));
    }

    /// The next command with this word is executed, and has this reply, in the form of the protocol.
    pub fn say(&self, word: &'static str, reply: &'static str) {
        self.network.state.lock().expect("a lock").says = Some((word, reply));
    }

    /// Each reply takes this long from now on.
    pub fn delay_replies(&self, time: Duration) {
        self.network.state.lock().expect("a lock").replies_take = time;
    }

    /// The server hears so much later that a client has ended its connection. Commands before it arrive at once.
    pub fn delay_ends(&self, time: Duration) {
        self.network.state.lock().expect("a lock").ends_take = time;
    }

    /// Lets those commands arrive now, before the end of their connection if that has ended.
    pub fn deliver(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        (state.keeps_before, state.keeps, state.is_stranded) = (0, None, false);
        self.network.changed.notify_all();
    }

    /// Breaks all connections, with what is kept of them. New ones work.
    pub fn cut(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.keeps_integers = false;
        self.network.changed.notify_all();
    }
}

impl Network {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let [mut from_client, mut to_client] = [client.try_clone(), client.try_clone()].map(|c| c.expect("a socket"));
        let [mut from_server, mut to_server] = [server.try_clone(), server.try_clone()].map(|c| c.expect("a socket"));
        let number = {
            let mut state = self.state.lock().expect("a lock");
            state.connections.extend([client, server]);
            state.made += 1;
            state.made - 1
        };
        let network = self.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = from_client.read(&mut chunk) {
                network.wait_until_it_arrives(number);
                network.wait_until_it_is_not_kept(&chunk[..length]);
                network.note_lie(number, &chunk[..length]);
                if let Some(rest) = network.strands(&chunk[..length], &mut from_client) {
                    let _ = to_server.write_all(&rest);
                    break;
                }
                if to_server.write_all(&chunk[..length]).is_err() {
                    break;
                }
            }
            network.wait_until_it_arrives(number);
            network.sleep(|state| state.ends_take);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        let network = self.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = from_server.read(&mut chunk) {
                if chunk[0] == b':' {
                    network.wait_until_integers_pass();
                }
                network.wait_while_silent(number);
                network.sleep(|state| state.replies_take);
                let reply = network.lie(number).map_or(&chunk[..length], str::as_bytes);
                if to_client.write_all(reply).is_err() {
                    break;
                }
            }
            network.wait_while_silent(number);
            let _ = to_client.shutdown(Shutdown::Both);
        });
    }

    fn sleep(&self, time: impl Fn(&State) -> Duration) {
        let time = time(&self.state.lock().expect("a lock"));
        thread::sleep(time);
    }

    /// Waits while a connection is silent. Nothing ends that.
    fn wait_while_silent(&self, number: usize) {
        let state = self.state.lock().expect("a lock");
        let _is_heard = self.changed.wait_while(state, |state| number < state.silent_before).expect("a lock");
    }

    /// Waits while the commands of a connection are kept, or it is silent.
    fn wait_until_it_arrives(&self, number: usize) {
        let state = self.state.lock().expect("a lock");
        let _arrives = self
            .changed
            .wait_while(state, |state| number < state.keeps_before.max(state.silent_before))
            .expect("a lock");
    }

    /// Waits while commands with a word of these are kept.
    fn wait_until_it_is_not_kept(&self, commands: &[u8]) {
        let has = |word: &str| commands.windows(word.len()).any(|part| part == word.as_bytes());
        let mut state = self.state.lock().expect("a lock");
        state.kept += usize::from(state.keeps.is_some_and(has));
        let _passes = self.changed.wait_while(state, |state| state.keeps.is_some_and(has)).expect("a lock");
    }

    fn note_lie(&self, number: usize, commands: &[u8]) {
        let has = |word: &str| commands.windows(word.len()).any(|part| part == word.as_bytes());
        let mut state = self.state.lock().expect("a lock");
        if let Some((_, reply)) = state.says.take_if(|(word, _)| has(word)) {
            state.lies_on = Some((number, reply));
        }
    }

    /// Returns what takes the place of the reply that has come.
    fn lie(&self, number: usize) -> Option<&'static str> {
        let mut state = self.state.lock().expect("a lock");
        state.lies_on.take_if(|(on, _)| *on == number).map(|(_, reply)| reply)
    }

    /// Strands the connection if it is the next that carries the first word: reads up to the second word, ends the
    /// connection of the client, waits until the commands are delivered, and returns them.
    fn strands(&self, commands: &[u8], client: &mut TcpStream) -> Option<Vec<u8>> {
        let has = |commands: &[u8], word: &str| commands.windows(word.len()).any(|part| part == word.as_bytes());
        let to = {
            let mut state = self.state.lock().expect("a lock");
            let (_, to) = state.strands.take_if(|(from, _)| has(commands, from))?;
            state.is_stranded = true;
            to
        };
        let (mut all, mut chunk) = (commands.to_vec(), [0; 4096]);
        while !has(&all, to)
            && let Ok(length @ 1..) = client.read(&mut chunk)
        {
            all.extend_from_slice(&chunk[..length]);
        }
        let _ = client.shutdown(Shutdown::Both);
        let state = self.state.lock().expect("a lock");
        let _arrives = self.changed.wait_while(state, |state| state.is_stranded).expect("a lock");
        Some(all)
    }

    /// Waits while replies that are integers are kept.
    fn wait_until_integers_pass(&self) {
        let state = self.state.lock().expect("a lock");
        let _passes = self.changed.wait_while(state, |state| state.keeps_integers).expect("a lock");
    }
}
