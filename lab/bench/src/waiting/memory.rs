//! The memory of a waiter, beside one that waits for an element of a list.

use std::thread;
use std::time::Duration;

use super::Open;
use super::ring::{Resource, Ring};
use crate::error::Error;
use crate::figures::Sheet;
use crate::server::Programs;

pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    for (name, resource) in [("lock", Resource::Lock), ("list", Resource::Element)] {
        let mut open = programs.open()?;
        let before = Memory::of(&mut open)?;
        let crowd = open.crowd(WAITERS + 1)?;
        let connected = Memory::of(&mut open)?;
        let ring = Ring::form(crowd, resource, b"lock:000000", 0, &mut open.control)?;
        let waiting = Memory::of(&mut open)?;
        // The server gives idle buffers back once in a while.
        thread::sleep(SETTLING);
        let settled = Memory::of(&mut open)?;
        drop(ring);
        sheet.note(&format!("{name}, a client that is connected"), &connected.a_waiter(&before));
        sheet.note(&format!("{name}, a client that waits"), &waiting.a_waiter(&before));
        sheet.note(&format!("{name}, the same after {} s", SETTLING.as_secs()), &settled.a_waiter(&before));
    }
    Ok(())
}

struct Memory {
    used: f64,
    resident: f64,
}

impl Memory {
    fn of(open: &mut Open) -> Result<Self, Error> {
        open.control.settle()?;
        // `used_memory_rss` is as old as the server's last tick.
        thread::sleep(Duration::from_millis(300));
        Ok(Self {
            used: open.control.info_number("memory", "used_memory")?,
            resident: open.control.info_number("memory", "used_memory_rss")?,
        })
    }

    fn a_waiter(&self, before: &Self) -> String {
        let waiters = WAITERS as f64;
        format!(
            "{:.0} bytes of used_memory, {:.0} resident",
            (self.used - before.used) / waiters,
            (self.resident - before.resident) / waiters
        )
    }
}

const WAITERS: usize = 10_000;
const SETTLING: Duration = Duration::from_secs(10);
