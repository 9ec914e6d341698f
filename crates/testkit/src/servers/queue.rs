//! Clients that wait in the queue.

use std::time::Duration;

use redis::Value;

use crate::client::{Client, Request};
use crate::lock::lock_info;
use crate::replica::counter;
use crate::server::Server;
use crate::wait::soon;
use crate::wire::int_of;

/// How long to wait for a reply that must not come. A wrong reply would have arrived before.
const GLANCE: Duration = Duration::from_millis(5);

/// Waits until each waiter is granted its lock. Fails if a wait ends otherwise.
#[track_caller]
pub fn all_granted(waiters: &mut [Client]) {
    for waiter in waiters {
        waiter.granted();
    }
}

impl Server {
    /// Connects a client that sends this request and waits in the queue.
    #[track_caller]
    pub fn waiter(&self, request: impl Request) -> Client {
        let mut client = self.client();
        self.enters_queue(&mut client, request);
        client
    }

    /// Connects a client for each of these requests. They wait in the queue in this order.
    #[track_caller]
    pub fn waiters<R: Request>(&self, requests: impl IntoIterator<Item = R>) -> Vec<Client> {
        requests.into_iter().map(|request| self.waiter(request)).collect()
    }

    /// Sends a request, and waits until it is in the queue.
    #[track_caller]
    pub fn enters_queue(&self, client: &mut Client, request: impl Request) {
        let mut watch = self.client();
        let before = counter(&mut watch, "waits");
        client.send(request);
        soon("the request waits", || counter(&mut watch, "waits") > before);
    }

    /// Returns the owners in the queue for a lock that is held.
    #[track_caller]
    pub fn queue(&self, key: &str) -> Vec<String> {
        let Some(info) = lock_info(&mut self.client(), &format!("{key} FULL COUNT 0")) else { return Vec::new() };
        let queue = info.queue.expect("FULL shows the queue");
        assert_eq!(info.waiters, queue.len() as i64);
        queue.into_iter().map(|queued| String::from_utf8(queued.owner).expect("a readable owner")).collect()
    }

    /// Returns the owners that hold a lock, by token.
    #[track_caller]
    pub fn holders(&self, key: &str) -> Vec<String> {
        let Some(info) = lock_info(&mut self.client(), &format!("{key} FULL COUNT 0")) else { return Vec::new() };
        let owners = info.holds().iter().map(|hold| String::from_utf8(hold.owner.clone()));
        owners.collect::<Result<_, _>>().expect("readable owners")
    }

    /// Returns how many requests wait on this server.
    #[track_caller]
    pub fn waiting(&self) -> i64 {
        counter(&mut self.client(), "waiters")
    }

    /// Waits until this number of requests wait on this server.
    #[track_caller]
    pub fn left_waiting(&self, waiters: i64) {
        let mut watch = self.client();
        soon(&format!("{waiters} wait"), || counter(&mut watch, "waiters") == waiters);
    }
}

impl Client {
    /// Waits for a grant. Returns its token.
    #[track_caller]
    pub fn granted(&mut self) -> i64 {
        int_of(&self.read().expect("a grant"))
    }

    /// Waits for a reply, which must be nil: the wait has ended without a grant.
    #[track_caller]
    pub fn gives_up(&mut self) {
        assert_eq!(self.read(), Ok(Value::Nil));
    }

    /// Waits for a reply, which must be an error, and returns it.
    #[track_caller]
    pub fn fails(&mut self) -> String {
        self.read().expect_err("an error")
    }

    /// Fails if a reply has come.
    #[track_caller]
    pub fn waits(&mut self) {
        if let Some(reply) = self.poll(GLANCE) {
            panic!("no reply yet, not {reply:?}");
        }
    }

    /// Returns the reply to `CLIENT ID`.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        self.int("CLIENT ID")
    }
}
