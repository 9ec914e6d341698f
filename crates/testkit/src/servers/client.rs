//! A client that gives access to values parsed by the `redis` crate, the exact bytes of a reply, pushes, and the absence
//! of a reply.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use socket2::{Domain, Socket, TcpKeepalive, Type};

use crate::wait::PATIENCE;
use crate::wire::{bytes_of, error_text, frame_end, int_of, list_of, parse, text_of};

/// A command: `"DLOCK.ACQUIRE k a"` (split at blanks), `&["GET", "k"]`, byte strings, or a [`Cmd`].
pub trait Request {
    fn packed(&self) -> Vec<u8>;
}

impl Request for str {
    fn packed(&self) -> Vec<u8> {
        self.split_whitespace().collect::<Vec<_>>().packed()
    }
}

impl Request for String {
    fn packed(&self) -> Vec<u8> {
        self.as_str().packed()
    }
}

impl Request for Cmd {
    fn packed(&self) -> Vec<u8> {
        self.get_packed_command()
    }
}

impl<T: AsRef<[u8]>> Request for [T] {
    fn packed(&self) -> Vec<u8> {
        let mut cmd = Cmd::new();
        for word in self {
            cmd.arg(word.as_ref());
        }
        cmd.get_packed_command()
    }
}

impl<T: AsRef<[u8]>> Request for Vec<T> {
    fn packed(&self) -> Vec<u8> {
        self.as_slice().packed()
    }
}

impl<T: AsRef<[u8]>, const N: usize> Request for [T; N] {
    fn packed(&self) -> Vec<u8> {
        self.as_slice().packed()
    }
}

impl<R: Request + ?Sized> Request for &R {
    fn packed(&self) -> Vec<u8> {
        (**self).packed()
    }
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    /// Received bytes, of which the first `taken` were returned to the caller.
    buffer: Vec<u8>,
    taken: usize,
    pushes: VecDeque<Value>,
}

impl Client {
    pub fn connect(port: u16) -> std::io::Result<Self> {
        Self::over(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// Connects from this address, which may be any of 127.0.0.0/8. In a network that was cut, the server may have closed
    /// the connection without the client's knowledge. Keepalive detects that within seconds.
    pub fn connect_from(address: Ipv4Addr, port: u16) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let probe = Duration::from_secs(1);
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(2 * probe).with_interval(probe).with_retries(10))?;
        socket.bind(&SocketAddr::from((address, 0)).into())?;
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new(), taken: 0, pushes: VecDeque::new() })
    }

    /// Switches this connection to RESP3.
    pub fn resp3(mut self) -> Self {
        self.run("HELLO 3");
        self
    }

    /// Sends without waiting for a reply.
    pub fn send(&mut self, request: impl Request) {
        self.send_raw(&request.packed());
    }

    /// Sends bytes without waiting for a reply.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads what is sent");
    }

    /// Sends all requests and reads nothing. Ignores errors, because the server may close the connection.
    pub fn send_all<R: Request>(&mut self, requests: &[R]) {
        let bytes: Vec<u8> = requests.iter().flat_map(Request::packed).collect();
        let _ = self.stream.write_all(&bytes);
    }

    /// Closes the sending side of the connection. Replies can still be read.
    pub fn hang_up(&self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// Closes the connection without sending anything to the server, like a machine that loses its power. Needs
    /// `CAP_NET_ADMIN`.
    pub fn vanish(self) -> std::io::Result<()> {
        let on: libc::c_int = 1;
        let size = size_of_val(&on) as libc::socklen_t;
        // SAFETY: the descriptor is open, and the option's value is read only.
        let done = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(self.stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_REPAIR, value, size)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Returns the next reply, if it comes in time. Pushes are kept for [`Client::push`].
    pub fn poll(&mut self, wait: Duration) -> Option<Value> {
        let deadline = Instant::now() + wait;
        loop {
            let frame = self.expect_frame(deadline)?;
            if frame.starts_with(b">") {
                self.pushes.push_back(parse(&frame));
                continue;
            }
            return Some(parse(&frame));
        }
    }

    /// Returns the next reply, an error as its whole text.
    #[track_caller]
    pub fn read(&mut self) -> Result<Value, String> {
        match self.poll(PATIENCE).expect("a reply in time") {
            Value::ServerError(error) => Err(error_text(&error)),
            value => Ok(value),
        }
    }

    /// Waits until the server closes the connection. Returns the replies that came before.
    #[track_caller]
    pub fn closes(&mut self) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        let mut replies = Vec::new();
        loop {
            match self.frame(deadline) {
                Ok(Some(frame)) => replies.push(parse(&frame)),
                Ok(None) => panic!("the connection stays open"),
                Err(_) => return replies,
            }
        }
    }

    /// Returns the next push message of a RESP3 connection, if it comes in time.
    pub fn push(&mut self, wait: Duration) -> Option<Value> {
        let deadline = Instant::now() + wait;
        while self.pushes.is_empty() {
            let frame = self.expect_frame(deadline)?;
            assert!(frame.starts_with(b">"), "a push, not {:?}", String::from_utf8_lossy(&frame));
            self.pushes.push_back(parse(&frame));
        }
        self.pushes.pop_front()
    }

    /// Returns all pushes that the server has sent so far.
    pub fn pushes(&mut self) -> Vec<Value> {
        self.run("PING");
        self.pushes.drain(..).collect()
    }

    /// Sends a request and returns the exact bytes of its reply.
    pub fn exact(&mut self, request: impl Request) -> Vec<u8> {
        self.send(request);
        self.expect_frame(Instant::now() + PATIENCE).expect("a reply in time")
    }

    /// Sends a request and returns its reply, or `None` after an error of the server or of the connection.
    pub fn ask(&mut self, request: impl Request) -> Option<Value> {
        self.stream.write_all(&request.packed()).ok()?;
        let frame = self.frame(Instant::now() + PATIENCE).ok()??;
        Some(parse(&frame)).filter(|value| !matches!(value, Value::ServerError(_)))
    }

    /// Sends a request and returns its reply, with an error of the server as its text, or the error of the connection. A
    /// missing reply is a `TimedOut` error.
    pub fn outcome(&mut self, request: impl Request) -> std::io::Result<Result<Value, String>> {
        self.outcome_within(PATIENCE, request)
    }

    /// Does the same as [`Client::outcome`] for a request that may take this long.
    pub fn outcome_within(&mut self, wait: Duration, request: impl Request) -> std::io::Result<Result<Value, String>> {
        self.stream.write_all(&request.packed())?;
        let frame = self.frame(Instant::now() + wait)?.ok_or(ErrorKind::TimedOut)?;
        Ok(match parse(&frame) {
            Value::ServerError(error) => Err(error_text(&error)),
            value => Ok(value),
        })
    }

    /// Sends a request and returns its reply, with an error of the server as its text.
    #[track_caller]
    pub fn attempt(&mut self, request: impl Request) -> Result<Value, String> {
        self.send(request);
        self.read()
    }

    /// Sends up to 256 requests at a time, then reads their replies.
    #[track_caller]
    pub fn pipeline<R: Request>(&mut self, requests: &[R]) -> Vec<Result<Value, String>> {
        let mut replies = Vec::with_capacity(requests.len());
        for chunk in requests.chunks(256) {
            let bytes: Vec<u8> = chunk.iter().flat_map(Request::packed).collect();
            self.send_raw(&bytes);
            replies.extend(chunk.iter().map(|_| self.read()));
        }
        replies
    }

    /// Sends a request and returns its reply, which must not be an error.
    #[track_caller]
    pub fn run(&mut self, request: impl Request) -> Value {
        let bytes = request.packed();
        self.send_raw(&bytes);
        self.read().unwrap_or_else(|error| panic!("{error}\nto {:?}", String::from_utf8_lossy(&bytes)))
    }

    /// Sends a request and returns the error that it must cause.
    #[track_caller]
    pub fn error(&mut self, request: impl Request) -> String {
        let bytes = request.packed();
        self.send_raw(&bytes);
        match self.read() {
            Err(text) => text,
            Ok(value) => panic!("an error, not {value:?}\nto {:?}", String::from_utf8_lossy(&bytes)),
        }
    }

    #[track_caller]
    pub fn int(&mut self, request: impl Request) -> i64 {
        int_of(&self.run(request))
    }

    #[track_caller]
    pub fn text(&mut self, request: impl Request) -> String {
        text_of(&self.run(request))
    }

    #[track_caller]
    pub fn bytes(&mut self, request: impl Request) -> Vec<u8> {
        bytes_of(&self.run(request))
    }

    #[track_caller]
    pub fn nil(&mut self, request: impl Request) {
        let value = self.run(request);
        assert_eq!(value, Value::Nil);
    }

    #[track_caller]
    pub fn ok(&mut self, request: impl Request) {
        let value = self.run(request);
        assert_eq!(value, Value::Okay);
    }

    /// Sends a command of a transaction, whose reply must be `QUEUED`.
    #[track_caller]
    pub fn queued(&mut self, request: impl Request) {
        assert_eq!(self.text(request), "QUEUED");
    }

    /// Returns whether a key has changed since this connection began to `WATCH` it. Ends the watch.
    #[track_caller]
    pub fn watched_key_changed(&mut self) -> bool {
        self.ok("MULTI");
        self.queued("PING");
        self.run("EXEC") == Value::Nil
    }

    /// Returns the server's clock in microseconds.
    #[track_caller]
    pub fn now_us(&mut self) -> i64 {
        let time = list_of(&self.run("TIME"));
        int_of(&time[0]) * 1_000_000 + int_of(&time[1])
    }

    /// Returns the server's clock in milliseconds.
    #[track_caller]
    pub fn now(&mut self) -> i64 {
        self.now_us() / 1000
    }

    /// Waits until the server's clock is past `deadline` (unix ms).
    #[track_caller]
    pub fn pass(&mut self, deadline: i64) {
        loop {
            let left = deadline - self.now();
            if left < 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(left.unsigned_abs() + 1));
        }
    }

    /// Waits until the server's clock has moved on by more than `time` milliseconds.
    #[track_caller]
    pub fn pass_ms(&mut self, time: i64) {
        let now = self.now();
        self.pass(now + time);
    }

    #[track_caller]
    fn expect_frame(&mut self, deadline: Instant) -> Option<Vec<u8>> {
        self.frame(deadline).unwrap_or_else(|e| panic!("reading a reply: {e}"))
    }

    /// Returns the next whole frame, or `None` if it is not there in time.
    fn frame(&mut self, deadline: Instant) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = frame_end(&self.buffer, self.taken) {
                let frame = self.buffer[self.taken..end].to_vec();
                self.taken = end;
                return Ok(Some(frame));
            }
            self.buffer.drain(..std::mem::take(&mut self.taken));
            // After the deadline, reads only what has arrived already.
            let left = deadline.saturating_duration_since(Instant::now());
            self.stream.set_nonblocking(left.is_zero())?;
            self.stream.set_read_timeout(Some(left).filter(|left| !left.is_zero()))?;
            let mut chunk = [0; 65536];
            let read = self.stream.read(&mut chunk);
            self.stream.set_nonblocking(false)?;
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
}
