//! `RELEASE`, `RENEW`, `CHECK` and `SESSION`.

use std::sync::Arc;
use std::time::Duration;

use dlock_client::Error;
use dlock_core::args::{self, Malformed};
use dlock_core::{BindTo, Entries, Lease, LeaseChoice, RenewToken};

use super::acquire::not_bound;
use super::hold::{Hold, on_servers};
use super::{Quorum, malformed, not_offered, outage};
use crate::quorum::hold::Anchor;
use crate::resp::{Reply, Request};
use crate::stats::Stats;

impl Quorum {
    pub(super) async fn release(&self, request: &Request) -> Reply {
        let said = match args::Release::parse(request.after(2)) {
            Ok(said) => said,
            Err(what) => return Reply::error(what.text(&request.name())),
        };
        let key = request.word(1).unwrap_or_default();
        let Some(hold) = self.table.of(key, &said.owner) else {
            // To a repeated release, nil would mean that the first one succeeded.
            return match self.table.unconfirmed_for(key, &said.owner) {
                Some(left) => {
                    let ms = left.as_millis();
                    Reply::error(format!("LOADING no majority has confirmed the release: the lease ends in {ms} ms"))
                }
                None => Reply::Nil,
            };
        };
        // A hold has one entry here.
        let has_enough = match said.entries {
            Entries::All => true,
            Entries::Some(count) => count.get() == 1,
        };
        let is_meant =
            said.mode.is_none_or(|mode| mode == hold.mode) && said.token.is_none_or(|token| token == hold.token);
        if !has_enough || !is_meant {
            return Reply::Nil;
        }
        match self.table.release(&hold).await {
            Ok(()) => Reply::Integer(1),
            Err(Error::Lost) => Reply::Nil,
            Err(error) => outage(&self.table.stats, &error),
        }
    }

    /// Answers `RENEW`. `None`: the connection that the hold should be bound to is gone.
    pub(super) async fn renew(&self, request: &Request, connection: &Arc<Anchor>) -> Option<Reply> {
        let said = match args::Renew::parse(request.after(2), self.limits()) {
            Ok(said) => said,
            Err(what) => return Some(malformed(&what, &request.name())),
        };
        if matches!(said.token, RenewToken::AtLeast(_)) {
            return Some(not_offered("MINTOKEN: the agent raises the tokens by itself"));
        }
        if matches!(said.lease, LeaseChoice::Until(_)) {
            return Some(not_offered("EXAT and PXAT: its servers have clocks of their own"));
        }
        // An unknown session is an error, even if the owner holds nothing. The lease is checked further down.
        if let Err(reply) = self.anchor(&said.session, connection, Duration::MAX) {
            return Some(reply);
        }
        let key = request.word(1).unwrap_or_default();
        let Some(hold) = self.table.of(key, &said.owner) else { return Some(Reply::Nil) };
        let is_meant = said.mode.is_none_or(|mode| mode == hold.mode)
            && !matches!(said.token, RenewToken::Is(token) if token != hold.token);
        if !is_meant {
            return Some(Reply::Nil);
        }
        let lease = match lease_of(&said.lease, &hold, said.session != BindTo::Nothing) {
            Ok(lease) => lease,
            Err(reply) => return Some(reply),
        };
        let anchor = match self.anchor(&said.session, connection, lease) {
            Ok(anchor) => anchor,
            Err(reply) => return Some(reply),
        };
        match hold.renew(lease).await {
            Ok(()) => Stats::count(&self.table.stats.renewals),
            Err(Error::Lost) => return Some(Reply::Nil),
            Err(error) => return Some(outage(&self.table.stats, &error)),
        }
        if let Some(anchor) = anchor
            && let Err(why) = anchor.bind(&hold)
        {
            return not_bound(why, &anchor);
        }
        Some(Reply::Integer(1))
    }

    pub(super) async fn check(&self, request: &Request) -> Reply {
        let key = request.word(1).unwrap_or_default();
        let said = match args::Check::parse(request.after(2)) {
            Ok(said) => said,
            Err(what) => return Reply::error(what.text(&request.name())),
        };
        if let Some(hold) = self.table.with(key, said.token) {
            // A client cannot count on less than a millisecond.
            return match hold.remaining().as_millis() {
                0 => Reply::Nil,
                ms => Reply::number(ms),
            };
        }
        // The servers hold a lapsed lock for longer than the client may count on it.
        if self.table.has_lapsed(key, said.token) {
            return Reply::Nil;
        }
        match self.members.check(key, said.token).await {
            Ok(left) => Reply::perhaps(left),
            Err(why) => {
                Stats::count(&self.table.stats.outages);
                Reply::error(why)
            }
        }
    }

    pub(super) fn session(&self, request: &Request) -> Reply {
        match args::Session::parse(request.after(1)) {
            Ok(said) => self.sessions.answer(said, &self.table),
            Err(what) => Reply::error(what.text(&request.name())),
        }
    }
}

/// Returns the lease that a renewal gives to a hold.
fn lease_of(said: &LeaseChoice, hold: &Hold, binds: bool) -> Result<Duration, Reply> {
    let lease = match said {
        LeaseChoice::For(lease) => Duration::from_millis(lease.get()),
        LeaseChoice::Own | LeaseChoice::Until(_) => hold.lease(),
    };
    if (binds || hold.anchor().is_some()) && lease < Duration::from_millis(Lease::MIN_BOUND.get()) {
        return Err(Reply::error(Malformed::SessionLease.text("")));
    }
    // The servers have the lease of the grant, and no renewal changes it there.
    if on_servers(lease) > hold.longest {
        return Err(not_offered("a lease that is longer than the one of the grant"));
    }
    Ok(lease)
}
