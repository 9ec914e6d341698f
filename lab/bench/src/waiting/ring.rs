//! Clients that pass a lock or an element of a list round: one client has it, the others wait for it in order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::error::Error;
use crate::owners;
use crate::resp::{Expect, Request};

/// The resource that the clients of a ring pass round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resource {
    /// A lock: `RELEASE`, `ACQUIRE BLOCK`.
    Lock,
    /// An element of a list: `LPUSH`, `BLPOP`.
    Element,
}

impl Resource {
    pub fn wait(self, key: &[u8], owner: &[u8]) -> Request {
        match self {
            Self::Lock => Request::new(&[b"DLOCK.ACQUIRE", key, owner, b"PX", LEASE, b"BLOCK", b"0"], Expect::Positive),
            Self::Element => Request::new(&[b"BLPOP", key, b"0"], Expect::Array(2)),
        }
    }

    pub fn give(self, key: &[u8], owner: &[u8]) -> Request {
        match self {
            Self::Lock => Request::new(&[b"DLOCK.RELEASE", key, owner], Expect::Integer(1)),
            Self::Element => Request::new(&[b"LPUSH", key, owner], Expect::Integer(1)),
        }
    }
}

/// Clients that pass a resource round.
///
/// The order is known, so one thread reads from the client that is next. The cost on the client's side therefore does
/// not depend on the number of clients.
pub struct Ring {
    /// The first member has the resource. The others wait for it in this order.
    members: VecDeque<Member>,
    resource: Resource,
}

struct Member {
    connection: Connection,
    wait: Request,
    give: Request,
}

impl Ring {
    /// Gives the resource to the first client, and lets the others wait for it in order. Owners have numbers from
    /// `first_owner` on. A `PING` on `control` makes sure that the server has read each request.
    pub fn form(
        crowd: impl IntoIterator<Item = Connection>,
        resource: Resource,
        key: &[u8],
        first_owner: usize,
        control: &mut Connection,
    ) -> Result<Self, Error> {
        let member = |(number, connection)| {
            let owner = owners::owner(first_owner + number);
            Member { connection, wait: resource.wait(key, &owner), give: resource.give(key, &owner) }
        };
        let mut members: VecDeque<Member> = crowd.into_iter().enumerate().map(member).collect();
        for (place, member) in members.iter_mut().enumerate() {
            match (place, resource) {
                (0, Resource::Lock) => member.connection.exchange(&[&member.wait])?,
                // The first member has the element without asking.
                (0, Resource::Element) => {}
                (_, Resource::Lock | Resource::Element) => {
                    member.connection.send(&member.wait.bytes)?;
                    control.settle()?;
                }
            }
        }
        Ok(Self { members, resource })
    }

    /// Passes the resource to the second member; the first waits at the end. Returns the time until it was received.
    pub fn pass(&mut self) -> Result<Duration, Error> {
        let (mut giver, time) = self.hand_over()?;
        giver.connection.send(&giver.wait.bytes)?;
        self.members.push_back(giver);
        Ok(time)
    }

    /// Passes the resource on until nobody waits, and releases it if it is a lock. Returns the connections.
    pub fn dissolve(mut self) -> Result<Vec<Connection>, Error> {
        let mut crowd = Vec::with_capacity(self.members.len());
        while self.members.len() > 1 {
            crowd.push(self.hand_over()?.0.connection);
        }
        if let Some(mut last) = self.members.pop_front() {
            if self.resource == Resource::Lock {
                last.connection.exchange(&[&last.give])?;
            }
            crowd.push(last.connection);
        }
        Ok(crowd)
    }

    /// Passes the resource from the first member to the second. Returns the first, which leaves the ring, and the time
    /// from sending the resource to receiving it.
    fn hand_over(&mut self) -> Result<(Member, Duration), Error> {
        let nobody = || Error::Server("nobody waits".into());
        let mut giver = self.members.pop_front().ok_or_else(nobody)?;
        let next = self.members.front_mut().ok_or_else(nobody)?;
        let sent = Instant::now();
        giver.connection.send(&giver.give.bytes)?;
        next.connection.receive_for(&next.wait)?;
        let time = sent.elapsed();
        giver.connection.receive_for(&giver.give)?;
        Ok((giver, time))
    }
}

/// In ms: longer than any measurement takes, so that no lease ends by itself.
const LEASE: &[u8] = b"3600000";
