//! A client that is a process of its own, so that it can be killed or stopped.

use std::process::{Child, Command, Stdio};

use super::client::Client;
use super::process::{die_with_the_tests, signal, spawn};
use super::server::Server;

const PORT: &str = "DLOCK_TEST_CLIENT_PORT";
const COMMANDS: &str = "DLOCK_TEST_CLIENT_COMMANDS";

/// A process that sends commands on one connection and then does nothing, with the connection open.
pub struct ClientProcess(Child);

impl ClientProcess {
    pub fn start(server: &Server, commands: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the tests' own binary"));
        command.args(["--ignored", "--exact", "support::child::a_client_process"]);
        command.env(PORT, server.port().to_string()).env(COMMANDS, commands.join("\n"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        die_with_the_tests(&mut command);
        Self(spawn(command))
    }

    /// `kill -9`. The process may not be gone yet.
    pub fn kill9(&self) {
        signal(&self.0, libc::SIGKILL);
    }

    /// Stops the process where it is (`SIGSTOP`).
    pub fn freeze(&self) {
        signal(&self.0, libc::SIGSTOP);
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "what a ClientProcess runs"]
fn a_client_process() {
    let (Ok(port), Ok(commands)) = (std::env::var(PORT), std::env::var(COMMANDS)) else { return };
    let mut client = Client::connect(port.parse().expect("a port")).expect("a server");
    for command in commands.lines() {
        client.run(command);
    }
    loop {
        std::thread::park();
    }
}
