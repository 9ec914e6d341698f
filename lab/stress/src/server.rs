//! A real server with the module, in a directory of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::Connection;

/// A running server. Killed when dropped.
pub struct Server {
    child: Child,
    home: tempfile::TempDir,
    pub port: u16,
}

impl Server {
    /// Starts `$DLOCK_SERVER` (`redis-server` on the `PATH` if there is none) with `$DLOCK_MODULE`.
    pub fn start(module_arguments: &str) -> Result<Server, String> {
        let home = tempfile::Builder::new().prefix("dlock-fuzz-").tempdir().map_err(|e| e.to_string())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        drop(listener);
        let module = std::env::var("DLOCK_MODULE").unwrap_or_else(|_| "target/release/libdlock.so".to_owned());
        let module = fs::canonicalize(&module).map_err(|e| format!("no module at {module}: {e}"))?;
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nlogfile server.log\nsave \"\"\nenable-debug-command yes\nhz 100\n\
             loadmodule {} {module_arguments}\n",
            home.path().display(),
            module.display()
        );
        let conf = home.path().join("server.conf");
        fs::write(&conf, text).map_err(|e| e.to_string())?;
        let program = std::env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let stderr = File::create(home.path().join("stderr")).map_err(|e| e.to_string())?;
        let child = Command::new(&program).arg(conf).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        let child = child.map_err(|e| format!("cannot start {program}: {e}"))?;
        let mut server = Server { child, home, port };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("the server ended with {status}:\n{}", self.log()));
            }
            if Connection::open(self.port).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the server does not answer:\n{}", self.log()))
    }

    /// Ends it in an orderly way, so that a tool it runs under can say what it has found.
    pub fn stop(mut self) -> Result<(), String> {
        Connection::open(self.port)?.send(&[b"SHUTDOWN", b"NOSAVE"])?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while Instant::now() < deadline {
            match self.child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the server ended with {status}:\n{}", self.log())),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        Err("the server does not end".to_owned())
    }

    /// The end of what it logged.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.home.path().join(name)).unwrap_or_default();
        let text = read("server.log") + &read("stderr");
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
