//! The answers of the servers in one attempt.

use std::time::Duration;

/// The state of a server in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The server was not asked.
    Unasked,
    /// The server was asked for the lock and has not answered.
    Open,
    /// The server granted: the hold has this token, and is live until this time.
    Granted { token: u64, until: Duration },
    /// The server granted, and was asked to raise the token to this one. The answer is pending.
    Raising(u64),
    /// The server refused, or has this client's hold no more. `waited`: the client must not wait in its queue again.
    Refused { waited: bool },
    /// The server answered with an error, or not in time. The client may have a hold there.
    Failed,
}

/// The votes of all servers.
#[derive(Clone, Debug)]
pub(crate) struct Votes(Vec<Vote>);

impl Votes {
    pub(crate) fn new(members: usize) -> Votes {
        Votes(vec![Vote::Unasked; members])
    }

    pub(crate) fn reset(&mut self) {
        self.0.fill(Vote::Unasked);
    }

    pub(crate) fn get(&self, member: usize) -> Vote {
        self.0.get(member).copied().unwrap_or(Vote::Failed)
    }

    pub(crate) fn set(&mut self, member: usize, vote: Vote) {
        if let Some(place) = self.0.get_mut(member) {
            *place = vote;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Vote)> {
        self.0.iter().copied().enumerate()
    }

    pub(crate) fn count(&self, wanted: impl Fn(Vote) -> bool) -> usize {
        self.0.iter().filter(|vote| wanted(**vote)).count()
    }

    /// Returns how many servers have granted a hold, with any token.
    pub(crate) fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted { .. } | Vote::Raising(_)))
    }

    /// Returns the highest token that was granted, or to which a hold is being raised.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.0.iter().filter_map(|vote| vote.token()).max()
    }

    /// Returns how many holds have this token, or are being raised to it.
    pub(crate) fn with(&self, token: u64) -> usize {
        self.count(|vote| vote.token() == Some(token))
    }

    /// Returns the token that at least `majority` servers have in common, by holds that are still live.
    pub(crate) fn agreed(&self, majority: usize, now: Duration) -> Option<u64> {
        let live = |vote: &Vote| match vote {
            Vote::Granted { token, until } if now < *until => Some(*token),
            _ => None,
        };
        let agree = |token: &u64| self.0.iter().filter(|vote| live(vote) == Some(*token)).count() >= majority;
        self.0.iter().filter_map(live).find(agree)
    }

    /// Returns the first server that refused: another client may hold the lock there.
    pub(crate) fn first_refusal(&self) -> Option<usize> {
        self.0.iter().position(|vote| matches!(vote, Vote::Refused { .. }))
    }
}

impl Vote {
    /// Returns the token of the hold, or the token to which the hold is being raised.
    pub(crate) fn token(self) -> Option<u64> {
        match self {
            Vote::Granted { token, .. } | Vote::Raising(token) => Some(token),
            Vote::Unasked | Vote::Open | Vote::Refused { .. } | Vote::Failed => None,
        }
    }

    /// Returns whether there may be a hold.
    pub(crate) fn may_hold(self) -> bool {
        matches!(self, Vote::Open | Vote::Granted { .. } | Vote::Raising(_) | Vote::Failed)
    }

    /// Returns whether an answer is pending.
    pub(crate) fn is_pending(self) -> bool {
        matches!(self, Vote::Open | Vote::Raising(_))
    }
}

#[cfg(test)]
impl Votes {
    /// Returns the token that counts as agreed if one of three rules is left out; `None` if none of them is.
    pub(crate) fn weakly_agreed(&self, terms: &crate::Terms, now: Duration) -> Option<Option<u64>> {
        use crate::terms::Rule;
        let majority = terms.majority();
        let granted =
            |vote: &Vote| if let Vote::Granted { token, until } = vote { Some((*token, *until)) } else { None };
        let granted: Vec<_> = self.0.iter().filter_map(granted).collect();
        let is_live = granted.iter().filter(|(_, until)| now < *until).count() >= majority;
        let mut tokens: Vec<u64> = granted.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable_by(|a, b| b.cmp(a));
        if !terms.keeps(Rule::SameToken) {
            return Some(tokens.get(majority - 1).copied().filter(|_| is_live));
        }
        if !terms.keeps(Rule::Raising) {
            return Some(tokens.first().copied().filter(|_| is_live));
        }
        if !terms.keeps(Rule::SameMajority) {
            let agree = |token: &u64| tokens.iter().filter(|other| *other == token).count() >= majority;
            return Some(tokens.iter().copied().find(agree).filter(|_| is_live));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Terms;
    use crate::terms::Rule;

    #[test]
    fn servers_agree_only_by_live_holds() {
        let second = Duration::from_secs(1);
        let terms = Terms::new(3, second, second / 10, second).unwrap();
        let mut votes = Votes::new(3);
        // Servers 0 and 1 have the same token. The holds of servers 1 and 2 live longer than that of server 0.
        let until = [second, second * 3, second * 3];
        for (member, token) in [7, 7, 9].into_iter().enumerate() {
            votes.set(member, Vote::Granted { token, until: until[member] });
        }
        assert_eq!(votes.agreed(2, second / 2), Some(7));
        assert_eq!(votes.agreed(2, second * 2), None);
        let weaker = votes.weakly_agreed(&terms.leaving_out(Some(Rule::SameMajority)), second * 2);
        assert_eq!(weaker, Some(Some(7)));
    }
}
