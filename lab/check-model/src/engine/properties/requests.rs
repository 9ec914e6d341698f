//! What must hold of requests: who is served and when, what is refused, and what comes twice.

use dlock_core::engine::{Answer, Fault, WaiterId};
use dlock_core::{Change, Mode, decode_effect};
use dlock_testkit::keyspace::Replicated;

use super::{Checked, DEADLOCK, Look, ORDER, REFUSALS, REQUESTS, SERVED, Step, holds_if};
use crate::engine::action::{Action, Enter, KeyNo, Wanted};
use crate::engine::rules::Situation;
use crate::engine::world::{Happened, Reply, Told, Waiting, World};
use crate::explorer::Broken;

impl World {
    pub(super) fn check_served(&self, step: &Step<'_>) -> Checked {
        let (after, before) = (step.after, step.before);
        let has_room = |enter: &Enter| enter.keys.iter().all(|key| after.situation.queue(*key).is_empty());
        if let (Action::Enter(enter), Reply::Nil) = (step.action, &step.happened.reply) {
            let may_go = has_room(enter) || after.situation.may_pass(enter);
            let could_go = may_go && before.situation.lets_in(enter) && after.situation.lets_in(enter);
            holds_if(!could_go, SERVED, || "it got nil".to_owned())?;
        }
        if after.is_due || !after.is_at_work {
            return Ok(());
        }
        match after.situation.whose_turn() {
            None => Ok(()),
            Some(waiting) => Err(Broken { property: SERVED, how: format!("it waits: {waiting:?}") }),
        }
    }

    /// What was answered is answered again, and nothing changes.
    pub(super) fn check_repeat(&self, step: &Step<'_>) -> Checked {
        let Happened { reply, .. } = step.happened;
        let expected = match (step.action, reply) {
            (Action::Enter(enter), Reply::Granted(token) | Reply::Replayed(token)) if enter.how.request.is_some() => {
                Reply::Replayed(*token)
            }
            (Action::Release(release), Reply::Number(0)) if release.how.request.is_some() => Reply::Number(0),
            _ => return Ok(()),
        };
        let mut again = self.clone();
        let before = again.holds();
        let happened = again.act(step.scope, step.action);
        let is_once = happened.reply == expected && before == again.holds();
        holds_if(is_once, REQUESTS, || format!("first {reply:?}, then {:?}", happened.reply))
    }
}

impl Step<'_> {
    /// Whoever was ahead got in before.
    pub(super) fn check_order(&self) -> Checked {
        let before = &self.before.situation;
        let mut waiting = before.waiting.clone();
        // Whoever left without an answer was in nobody's way any more.
        waiting.retain(|other| {
            let is_it = |waiting: &Waiting| waiting.id == other.id;
            self.after.situation.waiting.iter().any(is_it) || self.happened.told.iter().any(|told| is_it(&told.waiting))
        });
        for Told { waiting: served, answer } in &self.happened.told {
            let is_it = |waiting: &Waiting| waiting.id == served.id;
            if let (Answer::Granted(..), Some(at)) = (answer, waiting.iter().position(is_it)) {
                let situation = Situation { holds: Vec::new(), waiting: waiting.clone() };
                for key in &served.enter.keys {
                    let head = situation.queue(*key).first().map(|head| head.id);
                    let how = || format!("{served:?} passed {head:?} on key {key}");
                    holds_if(head == Some(served.id), ORDER, how)?;
                }
                waiting.remove(at);
            } else if !matches!(self.happened.reply, Reply::TakesOver) {
                waiting.retain(|other| !is_it(other));
            }
        }
        let (Action::Enter(enter), Reply::Granted(token)) = (self.action, &self.happened.reply) else { return Ok(()) };
        // What is due is done before a command is looked at.
        if before.may_pass(enter) || self.before.is_due {
            return Ok(());
        }
        for other in before.waiting.iter().filter(|other| shares_key(&other.enter.keys, &enter.keys)) {
            let still_waits = self.after.situation.waiting.iter().any(|waiting| waiting.id == other.id);
            let came_later = self.happened.told.iter().any(|told| {
                told.waiting.id == other.id && matches!(&told.answer, Answer::Granted(later, _) if later.get() > *token)
            });
            let is_same = enter.how.request.is_some()
                && other.enter.how.request == enter.how.request
                && other.enter.owner == enter.owner;
            let how = || format!("{enter:?} passed {other:?}");
            holds_if(is_same || !still_waits && !came_later, ORDER, how)?;
        }
        Ok(())
    }

    pub(super) fn check_deadlock(&self) -> Checked {
        let Action::Enter(enter) = self.action else { return Ok(()) };
        let is_settled = !self.before.is_due && self.before.is_at_work;
        match &self.happened.reply {
            Reply::Fault(Fault::Deadlock(_)) => {
                let situation = self.joined(enter);
                let why = situation.closes_a_cycle(TICKET) || self.before.situation.hinders_itself(enter).is_some();
                holds_if(why || !is_settled, DEADLOCK, || format!("{enter:?} was refused for no reason"))
            }
            Reply::Waits if is_settled => {
                let hinders = self.before.situation.hinders_itself(enter);
                holds_if(hinders.is_none(), DEADLOCK, || format!("{enter:?} waits, but {hinders:?}"))?;
                let closes = self.joined(enter).closes_a_cycle(TICKET);
                holds_if(!closes, DEADLOCK, || format!("{enter:?} waits for itself"))
            }
            _ => Ok(()),
        }
    }

    /// The situation before the action, with a request at the end of the queues.
    fn joined(&self, enter: &Enter) -> Situation {
        let mut situation = self.before.situation.clone();
        let is_upgrade = enter.how.want == Wanted::Again
            && enter.keys.iter().any(|key| situation.hold(*key, enter.owner, Mode::Shared).is_some());
        let id = WaiterId::default();
        situation.waiting.push(Waiting { id, ticket: TICKET, enter: enter.clone(), is_upgrade });
        situation
    }

    pub(super) fn check_refusal(&self) -> Checked {
        let is_refused = matches!(self.happened.reply, Reply::Nil | Reply::Fault(_));
        let is_settled = !self.before.is_due && !self.before.has_ended && self.happened.told.is_empty();
        if !is_refused || !is_settled {
            return Ok(());
        }
        let (before, after) = (self.before, self.after);
        let tickets = |look: &Look| look.situation.waiting.iter().map(|waiting| waiting.ticket).collect::<Vec<_>>();
        let is_same = before.situation.holds == after.situation.holds && tickets(before) == tickets(after);
        holds_if(is_same, REFUSALS, || format!("{:?} became {:?}", before.situation.holds, after.situation.holds))?;
        let wakes = (before.wake_at, after.wake_at);
        // A timer that may not write is set for work that the command has done meanwhile.
        let is_sooner = before.is_at_work && wakes.0.is_some_and(|before| wakes.1.is_none_or(|after| after > before));
        holds_if(!is_sooner, REFUSALS, || format!("the timer ran at {:?}, and now at {:?}", wakes.0, wakes.1))?;
        let is_sweep = |what: &Replicated| match what {
            Replicated::Effect(bytes) => decode_effect(bytes).is_ok_and(|effect| effect.change == Change::Sweep),
            Replicated::Release(_) => false,
            Replicated::Removed => true,
        };
        let is_silent = self.happened.stream.iter().all(|(_, what)| is_sweep(what));
        holds_if(is_silent, REFUSALS, || format!("it replicated {:?}", self.happened.stream))
    }
}

/// The ticket of a request that is only thought of.
const TICKET: u64 = u64::MAX;

fn shares_key(a: &[KeyNo], b: &[KeyNo]) -> bool {
    a.iter().any(|key| b.contains(key))
}
