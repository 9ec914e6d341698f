//! A fixed load: a ring of requests in wire form, each with the reply it must get.

use crate::connection::Connection;
use crate::error::Error;
use crate::owners;
use crate::resp::Request;

/// How many requests are sent before their replies are read.
pub const PIPELINE: usize = 16;

/// The requests that one contender sends, over and over.
pub struct Load {
    ring: Vec<Request>,
    requests_per_operation: usize,
}

impl Load {
    /// Returns a load of these operations. An operation is one request, or several that belong together
    /// (`[acquire, release]`). All operations have the same number of requests.
    pub fn new(operations: impl IntoIterator<Item = impl IntoIterator<Item = Request>>) -> Self {
        let mut ring = Vec::new();
        let mut operations_in_ring = 0;
        for operation in operations {
            ring.extend(operation);
            operations_in_ring += 1;
        }
        let requests_per_operation = ring.len().checked_div(operations_in_ring).unwrap_or(1);
        Self { ring, requests_per_operation }
    }

    /// Returns how many operations the ring has.
    pub fn operations(&self) -> usize {
        self.ring.len() / self.requests_per_operation
    }

    /// Returns the ring cut into batches, which are sent over and over. A batch has whole operations: as many as fit
    /// into `pipeline` requests, and at least one. With `pipeline` 1, a batch is one request.
    pub fn batches(&self, pipeline: usize) -> Vec<Batch> {
        let parts = self.requests_per_operation;
        if pipeline == 1 {
            let batch = |(index, request): (usize, &Request)| Batch::new(vec![request.clone()], index % parts, parts);
            return self.ring.iter().enumerate().map(batch).collect();
        }
        let operations = (pipeline / parts).max(1);
        // The ring is repeated until the last batch is a whole one.
        let rounds = operations / common_divisor(operations, self.operations());
        let requests: Vec<Request> = self.ring.iter().cycle().take(self.ring.len() * rounds).cloned().collect();
        requests.chunks(operations * parts).map(|chunk| Batch::new(chunk.to_vec(), 0, parts)).collect()
    }

    /// Runs this number of operations. After the last operation of the ring, the first one follows.
    pub fn run(&self, connection: &mut Connection, operations: usize) -> Result<(), Error> {
        let requests = operations * self.requests_per_operation;
        let mut rest = self.ring.iter().cycle().take(requests);
        loop {
            let batch: Vec<&Request> = rest.by_ref().take(PIPELINE).collect();
            if batch.is_empty() {
                return connection.settle();
            }
            connection.exchange(&batch)?;
        }
    }
}

/// Requests that go out together.
pub struct Batch {
    /// The requests in wire form.
    pub bytes: Vec<u8>,
    pub requests: Vec<Request>,
    pub begins_operation: bool,
    /// How many operations have their last request here.
    pub operations_ended: usize,
    /// The places of keys in `bytes`.
    keys: Vec<KeyPlaces>,
}

/// The places of the key of a request in the bytes of its batch.
struct KeyPlaces {
    begins_operation: bool,
    places: Vec<usize>,
}

impl Batch {
    /// Returns a batch. The first request is number `first`, counted from 0, of the `parts` of an operation.
    fn new(requests: Vec<Request>, first: usize, parts: usize) -> Self {
        let mut bytes = Vec::new();
        let mut keys = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let places = owners::places_of_keys(&request.bytes).map(|place| bytes.len() + place).collect();
            keys.push(KeyPlaces { begins_operation: (first + index).is_multiple_of(parts), places });
            bytes.extend_from_slice(&request.bytes);
        }
        let operations_ended = (first + requests.len()) / parts;
        Self { bytes, requests, begins_operation: first == 0, operations_ended, keys }
    }

    /// Writes keys into the requests. An operation that begins here gets the next key. An operation that began in an
    /// earlier batch gets `key`, which is the last key that was written.
    pub fn put_keys(&mut self, key: &mut Vec<u8>, mut next: impl FnMut() -> Vec<u8>) {
        for request in &self.keys {
            if request.begins_operation {
                *key = next();
            }
            for place in &request.places {
                if let Some(there) = self.bytes.get_mut(*place..place + key.len()) {
                    there.copy_from_slice(key);
                }
            }
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Expect;

    fn load(operations: usize) -> Load {
        Load::new((0..operations).map(|n| {
            let key = owners::key(n);
            [b"A", b"B", b"C"].map(|command| Request::new(&[command, &key], Expect::Ok))
        }))
    }

    #[test]
    fn batches_have_whole_operations_and_go_on_where_the_last_one_ended() {
        let batches = load(2).batches(10);
        assert_eq!(batches.iter().map(|batch| batch.operations_ended).collect::<Vec<_>>(), [3, 3]);
        let all: Vec<u8> = batches.iter().flat_map(|batch| batch.bytes.clone()).collect();
        let ring: Vec<u8> = load(2).ring.iter().flat_map(|request| request.bytes.clone()).collect();
        assert_eq!(all, ring.repeat(3));
    }

    #[test]
    fn without_pipelining_a_batch_is_a_request() {
        let batches = load(2).batches(1);
        assert_eq!(
            batches.iter().map(|batch| batch.begins_operation).collect::<Vec<_>>(),
            [true, false, false, true, false, false]
        );
        assert_eq!(batches.iter().map(|batch| batch.operations_ended).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn every_request_of_an_operation_gets_the_same_key() {
        let (mut key, mut numbers) = (Vec::new(), 7..);
        let mut next = || owners::key(numbers.next().unwrap_or(0));
        let mut batches = load(1).batches(1);
        for batch in &mut batches {
            batch.put_keys(&mut key, &mut next);
            assert_eq!(owners::places_of_keys(&batch.bytes).count(), 1);
            assert!(batch.bytes.ends_with(b"lock:000007\r\n"));
        }
    }
}
