//! Clients that pass something round: one has it, the others wait for it in the queue.

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

/// The first one has the resource, the others wait for it in this order.
///
/// Since the order is known, one thread serves them all with plain reads: the client's side costs the same in every
/// ring.
pub struct Ring {
    members: VecDeque<Member>,
    resource: Resource,
}

struct Member {
    connection: Connection,
    wait: Request,
    give: Request,
}

impl Ring {
    /// Puts the clients into the queue one by one, with owners from number `first_owner` on. `control` tells when each
    /// has joined.
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

    /// The first one gives it to the second and joins the queue again. Returns the time from giving to receiving.
    pub fn pass(&mut self) -> Result<Duration, Error> {
        let (mut giver, time) = self.hand_over()?;
        giver.connection.send(&giver.wait.bytes)?;
        self.members.push_back(giver);
        Ok(time)
    }

    /// Passes it from one to the next until nobody waits.
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

    /// Returns the first member, which leaves the ring, and the time from giving to receiving.
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

/// Longer than any part takes.
const LEASE: &[u8] = b"3600000";
