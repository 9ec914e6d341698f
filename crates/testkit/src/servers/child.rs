//! A client that is a process of its own, so that it can be killed or stopped.

use std::process::{Child, Command, Stdio};

use crate::process::{die_with_the_tests, signal, spawn};
use crate::server::Server;

/// Sends each command and waits for its reply, then keeps the connection open forever. The shell itself does all of it: a
/// child of it would keep the connection, too. Arguments: port, commands.
const SCRIPT: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$1"
for command in "${@:2}"; do
    printf '%s\r\n' "$command" >&3
    read -r <&3
done
while read -r <&3; do :; done
"#;

/// The same, then sends a command again and again. Arguments: port, that command, seconds between, the commands before.
/// The first `read` of the loop gets nothing: it waits for the interval, or for the end of the connection.
const BEATING: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$1"
for command in "${@:4}"; do
    printf '%s\r\n' "$command" >&3
    read -r <&3
done
while :; do
    read -r -t "$3" <&3
    printf '%s\r\n' "$2" >&3
    read -r <&3
done
"#;

/// A process that sends commands on one connection and then does nothing, with the connection open.
pub struct ClientProcess(Child);

impl ClientProcess {
    pub fn start(server: &Server, commands: &[&str]) -> Self {
        Self::spawn(&[&["-c", SCRIPT, "client", &server.port().to_string()], commands].concat())
    }

    /// After the commands, it sends another one each `seconds`.
    pub fn start_beating(server: &Server, commands: &[&str], beat: &str, seconds: u64) -> Self {
        let (port, seconds) = (server.port().to_string(), seconds.to_string());
        Self::spawn(&[&["-c", BEATING, "client", &port, beat, &seconds], commands].concat())
    }

    fn spawn(words: &[&str]) -> Self {
        let mut command = Command::new("bash");
        command.args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        die_with_the_tests(&mut command);
        Self(spawn(command))
    }

    /// Sends `kill -9`. The process may not be gone yet.
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
