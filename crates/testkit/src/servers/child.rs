//! A client as a process, so that a test can kill or stop it.

use std::process::{Child, Command, Stdio};

use crate::process::{die_with_the_tests, signal, spawn};
use crate::server::Server;

/// A script that sends each command and waits for its reply, then keeps the connection open. The shell starts no child,
/// which would share the connection. Arguments: port, commands.
const SCRIPT: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$1"
for command in "${@:2}"; do
    printf '%s\r\n' "$command" >&3
    read -r <&3
done
while read -r <&3; do :; done
"#;

/// A script that sends each command and waits for its reply, then repeats another command at an interval. The first `read`
/// of the loop waits for the interval, or for the end of the connection. Arguments: port, the command to repeat, the
/// interval in seconds, the other commands.
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

/// A process that sends commands on one connection, and keeps the connection open.
pub struct ClientProcess(Child);

impl ClientProcess {
    /// Starts a client that sends the commands. Does not wait until they are executed.
    pub fn start(server: &Server, commands: &[&str]) -> Self {
        Self::spawn(&[&["-c", SCRIPT, "client", &server.port().to_string()], commands].concat())
    }

    /// Starts a client that sends the commands, and then `beat` every `seconds`.
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

    /// Sends `SIGKILL`, without waiting for the end of the process.
    pub fn kill9(&self) {
        signal(&self.0, libc::SIGKILL);
    }

    /// Stops the process (`SIGSTOP`).
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
