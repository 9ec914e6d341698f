//! What each server has said in one attempt.

use crate::Answer;

/// A server's part in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// It was not asked.
    Unasked,
    /// It was asked and has not answered.
    Open,
    /// It granted, with this token.
    Granted(u64),
    /// It is held there by somebody else: there is no hold.
    Refused,
    /// It did not answer in time, or with an error. There may be a hold.
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

    /// Takes note of the answer to a request to enter.
    pub(crate) fn note(&mut self, member: usize, answer: Answer) {
        let vote = match answer {
            Answer::Granted(token) => Vote::Granted(token),
            Answer::Refused => Vote::Refused,
            Answer::Done | Answer::Gone | Answer::Failed => Vote::Failed,
        };
        self.set(member, vote);
    }

    /// Whoever has not answered is taken to have failed.
    pub(crate) fn close(&mut self) {
        self.0.iter_mut().filter(|vote| **vote == Vote::Open).for_each(|vote| *vote = Vote::Failed);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Vote)> {
        self.0.iter().copied().enumerate()
    }

    pub(crate) fn count(&self, wanted: impl Fn(Vote) -> bool) -> usize {
        self.0.iter().filter(|vote| wanted(**vote)).count()
    }

    pub(crate) fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted(_)))
    }

    /// The highest token granted.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.0.iter().filter_map(|vote| if let Vote::Granted(token) = vote { Some(*token) } else { None }).max()
    }

    /// The first server where it is held by somebody else.
    pub(crate) fn first_refusal(&self) -> Option<usize> {
        self.0.iter().position(|vote| *vote == Vote::Refused)
    }
}
