//! The server of the simulation, which executes commands, and ends leases by its own clock.

use super::{Happening, Holder, Kind, Order, World};
use crate::client_histories::validity::Event;

impl World {
    /// Ends a hold whose lease is over. The other client then gets the lock.
    pub(super) fn lapse(&mut self) {
        let end = self.deadline * 1000 - self.phase;
        if let Holder::Hold(hold) = self.holder
            && self.now >= end
        {
            self.gives_to_other(hold, end);
        }
    }

    fn gives_to_other(&mut self, hold: usize, at: i64) {
        self.guards[hold].ended = Some(at);
        self.holder = Holder::Other;
        let time = self.some(800);
        self.plan(self.now + time, Happening::OtherLeaves);
    }

    pub(super) fn executes(&mut self, order: Order) {
        let Order { hold, kind, back } = order;
        let is_held = self.holder == Holder::Hold(hold);
        let answer = match kind {
            Kind::Acquire { sent, open, ask } => {
                if self.holder != Holder::Nobody {
                    return;
                }
                self.holder = Holder::Hold(hold);
                self.guards[hold].ask = ask;
                self.deadline = self.server_ms() + self.guards[hold].lease;
                self.cap = self.has_cap.then(|| self.deadline + self.lease * 2 / 3);
                if let Some(back) = back {
                    self.plan(self.now + back, Happening::Reads { hold, sent, open });
                }
                return;
            }
            Kind::AcquireAgain { ask } => {
                if is_held && self.guards[hold].ask == ask {
                    self.deadline = self.capped(self.server_ms() + self.guards[hold].lease);
                }
                return;
            }
            Kind::Release => {
                if is_held {
                    self.gives_to_other(hold, self.now);
                }
                return;
            }
            Kind::Fails { number } => Event::Refused(number),
            Kind::Renew { number, .. } | Kind::Check { number } if !is_held => Event::Nil(number),
            Kind::Check { number } => Event::Left(number, self.deadline - self.server_ms()),
            Kind::Renew { number, lease } => {
                let asked = self.server_ms() + lease;
                self.deadline = self.capped(asked);
                if self.deadline < asked { Event::Capped(number) } else { Event::Ok(number) }
            }
        };
        if let Some(back) = back {
            let at = self.now + back;
            self.plan(at, Happening::Handles(hold, answer));
        }
    }

    fn capped(&self, deadline: i64) -> i64 {
        self.cap.map_or(deadline, |cap| deadline.min(cap))
    }
}
