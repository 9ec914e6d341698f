//! A clock that jumps: a small library preloaded into the server, and the file that it reads its offset from.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::Setup;

use crate::failure::{Doing, Failure, Result};

/// The clock of one server.
pub struct JumpingClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
    offset: i64,
}

impl JumpingClock {
    /// Builds the library in `dir`, with the C compiler that also links Rust programs.
    pub fn build(dir: &Path) -> Result<JumpingClock> {
        let (source, library, path) = (dir.join("clock.c"), dir.join("clock.so"), dir.join("clock"));
        std::fs::write(&source, SOURCE)?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .output()
            .doing("starting the C compiler")?;
        if !output.status.success() {
            return Err(Failure(format!("clock.c: {}", String::from_utf8_lossy(&output.stderr))));
        }
        let file = File::create(&path)?;
        file.write_all_at(&0_i64.to_ne_bytes(), 0)?;
        Ok(JumpingClock { library, path, file, offset: 0 })
    }

    /// Has a server, once started, live by this clock.
    pub fn give(&self, setup: Setup) -> Setup {
        setup.env("LD_PRELOAD", self.library.clone()).env("CHAOS_CLOCK", self.path.clone())
    }

    /// How far it is ahead, in µs.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Jumps so many µs.
    pub fn jump(&mut self, micros: i64) -> Result<()> {
        self.offset = self.offset.saturating_add(micros);
        self.file.write_all_at(&self.offset.to_ne_bytes(), 0).doing("setting the clock")
    }
}

const SOURCE: &str = include_str!("clock.c");
