//! A clock that jumps: a small library that is preloaded into the server, and the file with the clock's offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::process::shared_library;
use crate::server::Setup;

/// The clock of one server.
pub struct JumpingClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
    offset: i64,
}

impl JumpingClock {
    /// Builds the library in `dir`.
    ///
    /// # Errors
    /// The library cannot be built ([`shared_library`]), or the file of the offset cannot be written.
    pub fn build(dir: &Path) -> io::Result<JumpingClock> {
        let (library, path) = (shared_library(dir, "jumping", SOURCE)?, dir.join("clock"));
        let file = File::create(&path)?;
        file.write_all_at(&0_i64.to_ne_bytes(), 0)?;
        Ok(JumpingClock { library, path, file, offset: 0 })
    }

    /// Returns the setup of a server that uses this clock.
    pub fn give(&self, setup: Setup) -> Setup {
        setup.env("LD_PRELOAD", self.library.clone()).env("CHAOS_CLOCK", self.path.clone())
    }

    /// Returns how far the clock is ahead of real time, in µs.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Sets the clock forward, or back if `micros` is negative.
    ///
    /// # Errors
    /// The file of the offset cannot be written.
    pub fn jump(&mut self, micros: i64) -> io::Result<()> {
        self.offset = self.offset.saturating_add(micros);
        self.file.write_all_at(&self.offset.to_ne_bytes(), 0)
    }
}

const SOURCE: &str = include_str!("jumping.c");
