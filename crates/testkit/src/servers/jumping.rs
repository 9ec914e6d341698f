//! A clock that jumps: a small library preloaded into the server, and the file that it reads its offset from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::Setup;

/// The clock of one server.
pub struct JumpingClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
    offset: i64,
}

impl JumpingClock {
    /// Builds the library in `dir`, with the C compiler that also links Rust programs.
    ///
    /// # Errors
    /// A file cannot be written, or the compiler is missing or fails.
    pub fn build(dir: &Path) -> io::Result<JumpingClock> {
        let (source, library, path) = (dir.join("jumping.c"), dir.join("jumping.so"), dir.join("clock"));
        std::fs::write(&source, SOURCE)?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output =
            Command::new(&compiler).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("jumping.c: {}", String::from_utf8_lossy(&output.stderr))));
        }
        let file = File::create(&path)?;
        file.write_all_at(&0_i64.to_ne_bytes(), 0)?;
        Ok(JumpingClock { library, path, file, offset: 0 })
    }

    /// Has a server, once started, live by this clock.
    pub fn give(&self, setup: Setup) -> Setup {
        setup.env("LD_PRELOAD", self.library.clone()).env("CHAOS_CLOCK", self.path.clone())
    }

    /// Returns how far it is ahead, in µs.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Makes the clock jump, in µs.
    ///
    /// # Errors
    /// The file of the offset cannot be written.
    pub fn jump(&mut self, micros: i64) -> io::Result<()> {
        self.offset = self.offset.saturating_add(micros);
        self.file.write_all_at(&self.offset.to_ne_bytes(), 0)
    }
}

const SOURCE: &str = include_str!("jumping.c");
