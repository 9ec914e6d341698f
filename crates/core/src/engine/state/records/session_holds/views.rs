//! The bindings as the model checker and the audit see them.

use super::SessionHolds;
use crate::engine::state::load::Load;
use crate::{Lease, Mode, Owner, SessionKey, Token, UnixMs};

/// A hold that is bound.
#[derive(Debug)]
pub struct BindingView<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// The mode.
    pub mode: Mode,
    /// The session.
    pub key: SessionKey,
    /// The token.
    pub token: Token,
    /// The deadline.
    pub deadline: UnixMs,
    /// When the watchdog extends the lease; `None`: not any more.
    pub renew_at: Option<UnixMs>,
}

impl SessionHolds {
    /// Returns all bindings.
    pub(crate) fn views(&self) -> impl Iterator<Item = BindingView<'_>> {
        self.bindings.iter().map(|(id, binding)| BindingView {
            owner: &binding.owner,
            mode: binding.mode,
            key: binding.key,
            token: binding.token,
            deadline: binding.deadline,
            renew_at: self
                .renewals
                .contains(&(binding.renewal.at, *id))
                .then(|| binding.renewal.at.max(self.not_before)),
        })
    }

    /// Returns the session and the load of each bound hold.
    pub(crate) fn loads(&self) -> impl Iterator<Item = (SessionKey, Load)> {
        self.bindings.values().map(|binding| (binding.key, binding.renewal.load))
    }

    /// Returns the ended sessions that still have holds here, with the time of the end and the grace.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (SessionKey, UnixMs, Option<Lease>)> {
        let end = |key: &SessionKey| Some((*key, self.sessions.get(key)?.end?));
        self.ended.iter().filter_map(end).map(|(key, end)| (key, end.at, end.grace))
    }

    /// Returns whether a session that still has holds here has ended.
    pub(crate) fn has_session_ended(&self, key: SessionKey) -> bool {
        self.ended.contains(&key)
    }
}
