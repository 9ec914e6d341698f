//! The orders to the workers: where the primary is, and whether to go on. A file, so that it outlives everybody.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure, Result};

/// The control file.
pub struct Control(PathBuf);

/// The contents of the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The port of the primary.
    pub port: u16,
    pub work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    GoOn,
    /// Finish what was begun, then end.
    Finish,
}

impl Control {
    pub fn in_dir(dir: &Path) -> Control {
        Control(dir.join("control"))
    }

    pub fn write(&self, orders: Orders) -> Result<()> {
        let work = match orders.work {
            Work::GoOn => "go-on",
            Work::Finish => "finish",
        };
        let fresh = self.0.with_extension("new");
        fs::write(&fresh, format!("{} {work}", orders.port)).doing("writing orders")?;
        // The new file replaces the old one in one step, so that nobody reads half of it.
        fs::rename(fresh, &self.0).doing("writing orders")
    }

    pub fn read(&self) -> Result<Orders> {
        let text = fs::read_to_string(&self.0).doing("reading orders")?;
        let orders = text.split_once(' ').and_then(|(port, work)| {
            let work = match work {
                "go-on" => Work::GoOn,
                "finish" => Work::Finish,
                _ => return None,
            };
            Some(Orders { port: port.parse().ok()?, work })
        });
        orders.ok_or_else(|| Failure(format!("orders {text:?}")))
    }
}
