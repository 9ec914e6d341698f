//! A proxy between client and server that simulates network faults: slow replies, lost integers such as tokens, lost
//! commands, and connections that go silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::Server;

/// Forwards connections to a server. A test can hold back replies that are integers, or the traffic of the present
/// connections. The proxy reads the traffic that it holds back, and does not forward it. New connections always work.
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
    /// Whether replies that are integers are held back.
    keeps_integers: bool,
    /// Commands on connections with lower numbers are held back.
    keeps_before: usize,
    /// Commands with this word are held back.
    keeps: Option<&'static str>,
    /// How many commands with the word in `keeps` have come.
    kept: usize,
    /// The next connection with a command that contains the first word is stranded: see [`Proxy::strand`].
    strands: Option<(&'static str, &'static str)>,
    /// Whether a connection is stranded and its commands are not delivered yet.
    is_stranded: bool,
    /// All traffic on connections with lower numbers is held back, including their ends.
    silent_before: usize,
    /// The next command with the first of these is answered with the second.
    says: Option<(&'static str, &'static str)>,
    /// The connection whose next reply is replaced, and the replacement.
    lies_on: Option<(usize, &'static str)>,
    /// The delay of replies.
    replies_take: Duration,
    /// The delay after which the server learns that the client has closed a connection.
    ends_take: Duration,
    /// The number of connections so far. Connections are numbered from 0.
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

    /// Forwards new connections to this server.
    pub fn lead_to(&self, server: &Server) {
        self.network.state.lock().expect("a lock").target = server.port();
    }

    /// Silences the present connections for good without closing them, like a firewall that has dropped their state.
    pub fn forget_connections(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        state.silent_before = state.made;
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Holds back replies that are integers, until [`Proxy::cut`].
    pub fn keep_integers(&self) {
        self.network.state.lock().expect("a lock").keeps_integers = true;
    }

    /// Holds back commands on the present connections, until [`Proxy::deliver`].
    pub fn keep_commands(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        state.keeps_before = state.made;
    }

    /// Holds back commands with this word, and all later commands on the same connections, until [`Proxy::deliver`].
    pub fn keep_from(&self, word: &'static str) {
        let mut state = self.network.state.lock().expect("a lock");
        (state.keeps, state.kept) = (Some(word), 0);
    }

    /// Returns how many commands [`Proxy::keep_from`] has held back.
    pub fn kept(&self) -> usize {
        self.network.state.lock().expect("a lock").kept
    }

    /// Strands the next connection that has a command with the word `from`: reads its commands up to one with the word
    /// `to`, and closes the connection of the client. [`Proxy::deliver`] sends the commands to the server.
    pub fn strand(&self, from: &'static str, to: &'static str) {
        self.network.state.lock().expect("a lock").strands = Some((from, to));
    }

    /// Replaces the reply to the next command with this word, which the server still executes. `reply` is in the form of
    /// the protocol.
    pub fn say(&self, word: &'static str, reply: &'static str) {
        self.network.state.lock().expect("a lock").says = Some((word, reply));
    }

    /// Delays each reply by this time from now on.
    pub fn delay_replies(&self, time: Duration) {
        self.network.state.lock().expect("a lock").replies_take = time;
    }

    /// Delays the end of connections by this time on the way to the server. Commands arrive without delay.
    pub fn delay_ends(&self, time: Duration) {
        self.network.state.lock().expect("a lock").ends_take = time;
    }

    /// Delivers the commands that are held back. If the client has closed their connection, the server learns that after
    /// them.
    pub fn deliver(&self) {
        let mut state = self.network.state.lock().expect("a lock");
        (state.keeps_before, state.keeps, state.is_stranded) = (0, None, false);
        self.network.changed.notify_all();
    }

    /// Breaks all connections, and drops the traffic that is held back on them. New connections work.
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
                network.wait_while_commands_are_kept(number);
                network.wait_while_word_is_kept(&chunk[..length]);
                network.note_lie(number, &chunk[..length]);
                if let Some(rest) = network.strands(&chunk[..length], &mut from_client) {
                    let _ = to_server.write_all(&rest);
                    break;
                }
                if to_server.write_all(&chunk[..length]).is_err() {
                    break;
                }
            }
            network.wait_while_commands_are_kept(number);
            network.sleep(|state| state.ends_take);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        let network = self.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = from_server.read(&mut chunk) {
                if chunk[0] == b':' {
                    network.wait_while_integers_are_kept();
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

    /// Waits for good if a connection is silent.
    fn wait_while_silent(&self, number: usize) {
        let state = self.state.lock().expect("a lock");
        let _is_heard = self.changed.wait_while(state, |state| number < state.silent_before).expect("a lock");
    }

    /// Waits while the commands of a connection are held back, or the connection is silent.
    fn wait_while_commands_are_kept(&self, number: usize) {
        let state = self.state.lock().expect("a lock");
        let _arrives = self
            .changed
            .wait_while(state, |state| number < state.keeps_before.max(state.silent_before))
            .expect("a lock");
    }

    /// Waits while commands are held back because of a word in them.
    fn wait_while_word_is_kept(&self, commands: &[u8]) {
        let has = |word: &str| commands.windows(word.len()).any(|part| part == word.as_bytes());
        let mut state = self.state.lock().expect("a lock");
        state.kept += usize::from(state.keeps.is_some_and(has));
        let _passes = self.changed.wait_while(state, |state| state.keeps.is_some_and(has)).expect("a lock");
    }

    /// Records that the next reply on a connection is replaced, if the commands contain the word for that.
    fn note_lie(&self, number: usize, commands: &[u8]) {
        let has = |word: &str| commands.windows(word.len()).any(|part| part == word.as_bytes());
        let mut state = self.state.lock().expect("a lock");
        if let Some((_, reply)) = state.says.take_if(|(word, _)| has(word)) {
            state.lies_on = Some((number, reply));
        }
    }

    /// Returns the replacement of a reply, if there is one.
    fn lie(&self, number: usize) -> Option<&'static str> {
        let mut state = self.state.lock().expect("a lock");
        state.lies_on.take_if(|(on, _)| *on == number).map(|(_, reply)| reply)
    }

    /// Strands the connection if its commands contain the first word: reads up to the second word, closes the connection
    /// of the client, waits until the commands must be delivered, and returns them.
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

    /// Waits while replies that are integers are held back.
    fn wait_while_integers_are_kept(&self) {
        let state = self.state.lock().expect("a lock");
        let _passes = self.changed.wait_while(state, |state| state.keeps_integers).expect("a lock");
    }
}
