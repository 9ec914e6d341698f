//! Measures how long the server is busy without a break.
//!
//! Tests share the machine, so wall time alone is no measure. A period counts with the CPU time that the server's main
//! thread took in it, or with the wall time if that is less. Left out are:
//!
//! - the time before a request leaves and after its answer arrives, in which its thread may not run, but the server does;
//! - the time of other threads of the server, which free memory while it runs.
//!
//! Callers repeat a measurement and take the least.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::client::{Client, Request};
use crate::server::Server;
use crate::wait::{PATIENCE, soon};

/// The CPU time of the main thread of a process, or of all its threads if the kernel does not permit to measure one.
struct CpuClock {
    process: libc::clockid_t,
    main: Option<File>,
}

impl CpuClock {
    fn of(pid: u32) -> Self {
        let mut process = 0;
        // SAFETY: the call writes the one value it is given.
        let error = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut process) };
        assert_eq!(error, 0, "the CPU clock of a process");
        Self { process, main: thread_clock(pid.cast_signed()) }
    }

    fn now(&self) -> Duration {
        if let Some(mut main) = self.main.as_ref() {
            let mut ns = [0; 8];
            main.read_exact(&mut ns).expect("the CPU time of a thread");
            return Duration::from_nanos(u64::from_ne_bytes(ns));
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes the one structure it is given.
        let done = unsafe { libc::clock_gettime(self.process, &raw mut time) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn since(&self, start: Duration) -> Duration {
        self.now().saturating_sub(start)
    }
}

/// The first version of the kernel's `perf_event_attr`.
#[repr(C)]
struct Attributes {
    sort: u32,
    size: u32,
    config: u64,
    sampling: [u64; 3],
    flags: u64,
    more: [u64; 2],
}

/// A clock of the CPU time of a thread. Excludes the kernel and the hypervisor, whose events need privileges.
static TASK_CLOCK: Attributes = Attributes {
    sort: 1,
    size: size_of::<Attributes>() as u32,
    config: 1,
    sampling: [0; 3],
    flags: 0b11 << 5,
    more: [0; 2],
};

/// Returns a file from which the CPU time of a thread can be read, in ns, counted from now on. Returns `None` if the kernel
/// does not permit it.
fn thread_clock(thread: libc::pid_t) -> Option<File> {
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
    // SAFETY: the call reads the attributes, which contain their size.
    let file = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const TASK_CLOCK, thread, any_cpu, no_group, CLOSE_ON_EXEC)
    };
    let file = libc::c_int::try_from(file).ok().filter(|file| *file >= 0)?;
    // SAFETY: the call has opened the file, and nothing else owns it.
    Some(unsafe { File::from_raw_fd(file) })
}

/// A connection for which the kernel records when requests leave and when answers arrive.
struct Pinger(TcpStream);

impl Pinger {
    fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let times = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_TX_SOFTWARE;
        let times = times | libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        let size = size_of_val(&times) as libc::socklen_t;
        // SAFETY: the call reads the option's value only. If it fails, the times of this thread are taken.
        unsafe {
            let option = (&raw const times).cast();
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, option, size)
        };
        Self(stream)
    }

    /// Sends a `PING` and waits for its answer. Returns how long the request was on its way to the server and back.
    fn ping(&mut self) -> Duration {
        let started = now();
        self.0.write_all(b"PING\r\n").expect("the server reads");
        let (mut left, mut answered) = (b"+PONG\r\n".len(), None);
        while left > 0 {
            let (length, arrived) = self.receive(0);
            let length = usize::try_from(length).ok().filter(|length| *length > 0).expect("an answer in time");
            left = left.checked_sub(length).expect("one answer");
            answered = arrived;
        }
        let (_, sent) = self.receive(libc::MSG_ERRQUEUE);
        answered.unwrap_or_else(now).saturating_sub(sent.unwrap_or(started))
    }

    /// Returns how many bytes have arrived, and when. With `MSG_ERRQUEUE`, which never waits: when the request left.
    fn receive(&self, flags: libc::c_int) -> (isize, Option<Duration>) {
        let (mut bytes, mut control) = ([0_u8; 64], [0_u64; 32]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: zeros are a message without parts.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
        // SAFETY: the call writes no further than the lengths of the message.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        if length < 0 {
            return (length, None);
        }
        // SAFETY: the call has filled the message. A header of this type is followed by three times, the kernel's first.
        let time = unsafe {
            libc::CMSG_FIRSTHDR(&raw const message)
                .as_ref()
                .filter(|header| header.cmsg_type == libc::SCM_TIMESTAMPING)
                .map(|header| libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned())
        };
        (length, time.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32)))
    }
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970")
}

/// Calls a function when it is dropped, even by a panic.
pub(super) struct OnDrop<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Server {
    /// Returns the time that the server is busy while `act` runs: its CPU time, or the wall time if that is less.
    #[track_caller]
    pub fn takes(&self, act: impl FnOnce()) -> Duration {
        let clock = CpuClock::of(self.pid());
        let (wall, cpu) = (Instant::now(), clock.now());
        act();
        wall.elapsed().min(clock.since(cpu))
    }

    /// Returns the longest time that a `PING` of another connection waits for the server while `act` runs.
    #[track_caller]
    pub fn longest_turn(&self, act: impl FnOnce()) -> Duration {
        let (mut pinger, clock) = (Pinger::to(self), CpuClock::of(self.pid()));
        let (pings, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let cpu = clock.now();
                    let wall = pinger.ping();
                    longest = longest.max(wall.min(clock.since(cpu)));
                    pings.fetch_add(1, Ordering::Relaxed);
                }
                longest
            });
            let another = || {
                let before = pings.load(Ordering::Relaxed);
                soon("a PING is answered", || pings.load(Ordering::Relaxed) > before + 1);
            };
            // The guard ends the PINGs even after a panic, because the scope waits for their thread.
            let pinging_ends = OnDrop(|| ended.store(true, Ordering::Relaxed));
            another();
            act();
            another();
            drop(pinging_ends);
            pinging.join().expect("every PING is answered")
        })
    }
}

impl Client {
    /// Sends requests without replies, and waits until the server has executed all of them.
    #[track_caller]
    pub fn pour<R: Request>(&mut self, requests: impl IntoIterator<Item = R>) {
        self.send("CLIENT REPLY OFF");
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(request.packed());
            if bytes.len() > 1 << 20 {
                self.send_raw(&bytes);
                bytes.clear();
            }
        }
        self.send_raw(&bytes);
        self.send("CLIENT REPLY ON");
        // A busy machine takes its time for 100,000 commands.
        assert_eq!(self.poll(5 * PATIENCE), Some(redis::Value::Okay));
    }
}

/// Returns the least of three measurements. Other processes of the machine can only make a measurement larger.
#[track_caller]
pub fn least_of_three(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| measure()).min().expect("three")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const WORK: Duration = Duration::from_millis(30);

    /// Returns the least that the clock of a process counts in three runs of `work`.
    fn counted(pid: u32, work: impl Fn()) -> Duration {
        let clock = CpuClock::of(pid);
        least_of_three(|| {
            let start = clock.now();
            work();
            clock.since(start)
        })
    }

    /// A thread of the server frees a large lock that has ended, and a thread of the allocator returns its pages: work
    /// that makes nobody wait.
    #[test]
    fn only_the_main_thread_counts() {
        let main_thread_waits = counted(std::process::id(), || {
            let start = Instant::now();
            while start.elapsed() < WORK {}
        });
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let main_thread_works = counted(busy.id(), || std::thread::sleep(WORK));
        busy.kill().and_then(|()| busy.wait()).expect("the end of the shell");
        assert!(main_thread_works > Duration::ZERO);
        assert!(thread_clock(0).is_none() || main_thread_waits < WORK / 2, "{main_thread_waits:?}");
    }
}
