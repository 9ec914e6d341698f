//! The server's allocator, which the module uses for everything.
//!
//! # What glibc's `malloc` puts off
//! A server that is built without jemalloc (`INFO memory`: `mem_allocator:libc`) frees memory by glibc's `free`. It keeps
//! small freed pieces as they are, and merges all of them when anybody asks for 1 KB or more. After a session of 100,000
//! locks, one such request took 20 to 60 ms on the event loop, although the engine frees a piece at a time. So the module
//! makes that request itself after every [`MERGED_AT_ONCE`] small pieces: each takes less than 1 ms. jemalloc merges
//! nothing then; there, the request costs some ten nanoseconds.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU32, Ordering};

use redis_module::alloc::RedisAlloc;

/// Allocates in the server, which counts it in `used_memory`.
pub struct Allocator;

/// The largest piece that glibc keeps unmerged, in bytes: `M_MXFAST` (128) less the 8 in which it keeps the size.
const SMALL: usize = 120;
/// How many small pieces are freed before the allocator merges them.
const MERGED_AT_ONCE: u32 = 1024;
/// The request that has glibc merge them: larger than what it keeps ready for each thread.
const LARGE: Layout = Layout::new::<[u8; 4096]>();

/// How many small pieces were freed so far, roughly: threads may overwrite each other's count.
static FREED: AtomicU32 = AtomicU32::new(0);

// SAFETY: all memory is the server's allocator's, which takes back what it has given.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `GlobalAlloc`, which are the same.
        unsafe { RedisAlloc.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { RedisAlloc.dealloc(piece, layout) };
        if layout.size() <= SMALL {
            let freed = FREED.load(Ordering::Relaxed).wrapping_add(1);
            FREED.store(freed, Ordering::Relaxed);
            if freed.is_multiple_of(MERGED_AT_ONCE) {
                merge();
            }
        }
    }
}

/// Has the allocator merge the pieces that it keeps.
#[inline(never)]
fn merge() {
    // SAFETY: the size is not 0, and the piece is freed once, with its layout.
    unsafe {
        let piece = RedisAlloc.alloc(LARGE);
        RedisAlloc.dealloc(piece, LARGE);
    }
}
