//! A clock that jumps: a small library preloaded into the server, and the file that it reads its offset from.

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
    /// As of [`shared_library`].
    pub fn build(dir: &Path) -> io::Result<JumpingClock> {
        let (library, path) = (shared_library(dir, "jumping", SOURCE)?, dir.join("clock"));
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
