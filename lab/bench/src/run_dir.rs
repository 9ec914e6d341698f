//! A folder of its own for every run: configuration, log and callgrind's output. Gone when dropped.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;

pub struct RunDir(PathBuf);

impl RunDir {
    pub fn create() -> Result<Self, Error> {
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("dlock-bench-{}-{number}", process::id()));
        fs::create_dir(&path).map_err(Error::io(format!("creating {}", path.display())))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // A folder left behind harms nobody, and there is nobody to tell.
        let _ = fs::remove_dir_all(&self.0);
    }
}

static CREATED: AtomicUsize = AtomicUsize::new(0);
