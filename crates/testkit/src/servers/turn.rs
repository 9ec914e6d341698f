//! How long the server is busy at a stretch.
//!
//! Tests share the machine, so no measure is wall time alone: a stretch counts by the CPU time that the server took in
//! it, and by the wall time if that is less. The time that an answer waits for a thread that is late does not count: the
//! server goes on with its next turns meanwhile. Callers repeat a measurement and take the least.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::client::{Client, Request};
use crate::server::Server;
use crate::wait::{PATIENCE, soon};

/// The CPU time of another process.
#[derive(Clone, Copy)]
struct CpuClock(libc::clockid_t);

impl CpuClock {
    fn of(server: &Server) -> Self {
        let pid = i32::try_from(server.pid()).expect("a process id");
        let mut clock = 0;
        // SAFETY: the call writes the one value it is given.
        let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        assert_eq!(error, 0, "the CPU clock of a child");
        Self(clock)
    }

    fn now(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes the one structure it is given.
        let done = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// A connection that knows when its answers arrived.
struct Pinger(TcpStream);

impl Pinger {
    fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (on, size): (libc::c_int, _) = (1, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the option is the one value. Without the option, answers arrive when they are read.
        unsafe {
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const on).cast(), size)
        };
        Self(stream)
    }

    /// Waits for the answer to a `PING`. Returns how long it was there before it was read.
    fn ping(&mut self) -> Duration {
        self.0.write_all(b"PING\r\n").expect("the server reads");
        let (mut left, mut late) = (b"+PONG\r\n".len(), Duration::ZERO);
        while left > 0 {
            let (length, arrived) = self.receive();
            late = arrived.map_or(Duration::ZERO, |at| now().saturating_sub(at));
            left = left.checked_sub(length).expect("one answer");
        }
        late
    }

    /// Returns how many bytes have come, and when.
    fn receive(&self) -> (usize, Option<Duration>) {
        let (mut bytes, mut control) = ([0_u8; 64], [0_u64; 16]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: zeros are a message without parts.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
        // SAFETY: the call writes no further than the lengths of the message.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let length = usize::try_from(length).ok().filter(|length| *length > 0).expect("an answer in time");
        // SAFETY: the call has filled the message. A header of this type is followed by a time.
        let time = unsafe {
            libc::CMSG_FIRSTHDR(&raw const message)
                .as_ref()
                .filter(|header| header.cmsg_type == libc::SCM_TIMESTAMPNS)
                .map(|header| libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned())
        };
        (length, time.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32)))
    }
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970")
}

/// Does something when it is dropped, by a panic or without one.
pub(super) struct OnDrop<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Server {
    /// Measures the server while this acts: CPU time, or wall time if that is less.
    #[track_caller]
    pub fn takes(&self, act: impl FnOnce()) -> Duration {
        let clock = CpuClock::of(self);
        let (wall, cpu) = (Instant::now(), clock.now());
        act();
        wall.elapsed().min(clock.now() - cpu)
    }

    /// Returns the longest time that a `PING` of another connection waits for the server while this acts.
    #[track_caller]
    pub fn longest_turn(&self, act: impl FnOnce()) -> Duration {
        let (mut pinger, clock) = (Pinger::to(self), CpuClock::of(self));
        let (pings, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let (wall, cpu) = (Instant::now(), clock.now());
                    let late = pinger.ping();
                    let turn = wall.elapsed().min(clock.now() - cpu).saturating_sub(late);
                    longest = longest.max(turn);
                    pings.fetch_add(1, Ordering::Relaxed);
                }
                longest
            });
            let another = || {
                let before = pings.load(Ordering::Relaxed);
                soon("it is asked", || pings.load(Ordering::Relaxed) > before + 1);
            };
            // A panic ends the PINGs, too: the scope waits for them.
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
    /// Sends requests whose replies nobody needs, and waits until the server has done them all.
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
        assert_eq!(self.read(), Ok(redis::Value::Okay));
    }
}

/// Returns the least of three measurements: other processes of the machine only ever add to one.
#[track_caller]
pub fn least_of_three(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| measure()).min().expect("three")
}
