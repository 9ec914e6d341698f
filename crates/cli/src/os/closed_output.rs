//! Whether standard output was closed when this process began. Before `main`, the standard library opens /dev/null in
//! its place, where output is lost without an error. In `main`, that looks the same as a /dev/null of the caller.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc::{F_GETFD, STDOUT_FILENO, fcntl};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

pub fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

// SAFETY: the loader calls the functions in this section once, before `main`, on the only thread. `look` has their
// type, does not unwind, and needs nothing that the standard library sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_THE_BEGINNING: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: `F_GETFD` has no argument, and fails for a descriptor that is not open.
    let flags = unsafe { fcntl(STDOUT_FILENO, F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}
