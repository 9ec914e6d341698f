//! The protocol of Redis, as a server speaks it.
//!
//! Requests are parsed here and not by a crate. `redis-protocol` parses any value by recursion, nested as deep as a
//! client likes, and a check beforehand would need a parser like this one. `respite` limits the length of a word, but
//! neither the number of words nor the length of a request. `respite` also reads the socket by itself, but during a
//! wait the agent must watch the socket for the client's end.

mod reply;
mod request;

pub(crate) use reply::{Protocol, Reply};
pub(crate) use request::{Bounds, ProtocolError, Request};

/// Parses these bytes as requests of a client, for fuzzing. Returns the number of requests before the bytes end, or are
/// no request.
#[doc(hidden)]
pub fn fuzz_requests(mut bytes: &[u8]) -> usize {
    let bounds = Bounds::default();
    let mut count = 0;
    while let Ok(Some((request, length))) = Request::parse(bytes, bounds) {
        assert!(length > 0 && request.words().len() <= bounds.words);
        assert!(request.words().iter().map(Vec::len).sum::<usize>() <= length);
        bytes = bytes.get(length..).unwrap_or_default();
        count += 1;
    }
    count
}
