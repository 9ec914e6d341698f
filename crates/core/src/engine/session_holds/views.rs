//! The bindings, laid open for the model checker and the audit.

use super::SessionHolds;
use crate::engine::load::Load;
use crate::{Lease, SessionKey, UnixMs};

impl SessionHolds {
    /// Returns the bindings, laid open.
    pub(in crate::engine) fn views(&self) -> impl Iterator<Item = crate::engine::BindingView<'_>> {
        self.bindings.iter().map(|(id, binding)| crate::engine::BindingView {
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

    /// Returns the load of each hold, and its session.
    pub(in crate::engine) fn loads(&self) -> impl Iterator<Item = (SessionKey, Load)> {
        self.bindings.values().map(|binding| (binding.key, binding.renewal.load))
    }

    /// Returns the sessions that have ended, laid open.
    pub(in crate::engine) fn ends(&self) -> impl Iterator<Item = (SessionKey, UnixMs, Option<Lease>)> {
        let end = |key: &SessionKey| Some((*key, self.sessions.get(key)?.end?));
        self.ended.iter().filter_map(end).map(|(key, end)| (key, end.at, end.grace))
    }

    /// Returns whether a session has ended.
    pub(in crate::engine) fn has_session_ended(&self, key: SessionKey) -> bool {
        self.ended.contains(&key)
    }
}
