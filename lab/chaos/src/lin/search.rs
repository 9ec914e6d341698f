//! Wing and Gong's search, with Lowe's memory: is there an order in which each command comes before all that were sent
//! after its reply, and in which the model gives the replies that were seen?

use std::collections::HashSet;

use super::Op;
use super::model::Model;

/// Returns whether there is such an order of at most [`MOST_OPS`] commands, for locks that are free at first.
pub fn is_linearizable(ops: &[Op]) -> bool {
    let all = if ops.len() >= MOST_OPS { u64::MAX } else { (1 << ops.len()) - 1 };
    let mut seen = HashSet::new();
    // The commands that have been executed, as bits, and the state after them. A stack, since histories are long.
    let mut open = vec![(0_u64, Model::default())];
    while let Some((done, state)) = open.pop() {
        if state.answered() == all {
            return true;
        }
        if !seen.insert((done, state.key())) {
            continue;
        }
        open.extend(state.by_itself(ops).into_iter().map(|after| (done, after)));
        for at in next(ops, done, state.answered()) {
            open.extend(state.after_op(ops, at).into_iter().map(|after| (done | 1 << at, after)));
        }
    }
    false
}

/// How many commands one search can order.
pub const MOST_OPS: usize = 64;

/// The commands that may be executed next: those sent before the first reply that is still to be given.
fn next(ops: &[Op], done: u64, answered: u64) -> impl Iterator<Item = usize> {
    let without = move |bits: u64| ops.iter().enumerate().filter(move |(at, _)| bits & 1 << at == 0);
    let first_reply = without(answered).map(|(_, op)| op.replied).min().unwrap_or(u64::MAX);
    without(done).filter(move |(_, op)| op.sent < first_reply).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Reply;

    /// Returns a command sent and answered at these µs.
    fn op(sent: u64, replied: u64, command: &str, reply: Reply) -> Op {
        let (from_ms, until_ms) = (sent / 1000, replied / 1000);
        Op { command: command.to_owned(), from_ms, until_ms, sent, replied, reply }
    }

    fn explains(ops: &[Op]) -> bool {
        is_linearizable(ops)
    }

    const ALICE: &str = "DLOCK.ACQUIRE k alice PX 1000";
    const BOB: &str = "DLOCK.ACQUIRE k bob PX 1000";

    fn alice() -> Op {
        op(10_000, 12_000, ALICE, Reply::Int(11_500))
    }

    #[test]
    fn one_after_the_other_is_explained() {
        let release = op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Int(1));
        assert!(explains(&[alice(), release, op(15_000, 16_000, BOB, Reply::Int(15_100))]));
    }

    #[test]
    fn what_overlaps_may_come_in_any_order() {
        let bob = op(9_000, 20_000, BOB, Reply::Nil);
        assert!(explains(&[bob, alice()]), "after alice");
        let release = op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Int(1));
        assert!(explains(&[op(11_000, 20_000, BOB, Reply::Int(14_300)), alice(), release]));
    }

    #[test]
    fn two_grants_at_once_are_refused() {
        assert!(!explains(&[alice(), op(13_000, 14_000, BOB, Reply::Int(13_500))]));
    }

    #[test]
    fn a_refusal_of_a_free_lock_is_refused() {
        assert!(!explains(&[op(13_000, 14_000, BOB, Reply::Nil)]));
        assert!(!explains(&[op(1_000, 2_000, BOB, Reply::Nil), alice()]), "alice came after bob was answered");
    }

    #[test]
    fn a_lease_that_ends_too_early_or_too_late_is_refused() {
        let taken = |sent: u64, token: i64| op(sent, sent + 1000, BOB, Reply::Int(token));
        assert!(!explains(&[alice(), taken(1_005_000, 1_005_500)]), "alice's lease runs until 1011 ms");
        assert!(explains(&[alice(), taken(1_011_000, 1_011_500)]));
        assert!(!explains(&[alice(), op(1_013_000, 1_014_000, BOB, Reply::Nil)]), "alice's lease has ended");
        assert!(explains(&[alice(), op(1_009_000, 1_010_000, BOB, Reply::Nil)]));
    }

    #[test]
    fn a_token_used_again_or_not_of_its_time_is_refused() {
        let release = op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Int(1));
        let again = |token| [alice(), release.clone(), op(15_000, 16_000, BOB, Reply::Int(token))];
        assert!(!explains(&again(11_500)), "alice's");
        assert!(!explains(&again(90_000)), "of the future");
        assert!(explains(&again(15_999)));
    }

    #[test]
    fn a_stale_answer_is_refused() {
        let looks = |reply| op(13_000, 14_000, "DLOCK.CHECK k 11500", reply);
        assert!(!explains(&[alice(), looks(Reply::Nil)]));
        assert!(!explains(&[alice(), looks(Reply::Int(900))]), "too little is left");
        assert!(explains(&[alice(), looks(Reply::Int(998))]));
    }

    #[test]
    fn a_release_of_what_another_holds_is_refused() {
        assert!(!explains(&[alice(), op(13_000, 14_000, "DLOCK.RELEASE k bob", Reply::Int(1))]));
        assert!(!explains(&[alice(), op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Nil)]));
        assert!(!explains(&[alice(), op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Int(0))]));
    }

    #[test]
    fn an_entry_lost_is_refused() {
        let enters = |sent| op(sent, sent + 500, "DLOCK.RACQUIRE k alice PX 1000", Reply::Int(10_100));
        let leaves = |reply| op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Int(reply));
        assert!(explains(&[enters(10_000), enters(11_000), leaves(0)]));
        assert!(!explains(&[enters(10_000), enters(11_000), leaves(1)]));
    }

    #[test]
    fn a_request_executed_twice_is_refused() {
        let enters = |sent| op(sent, sent + 500, "DLOCK.RACQUIRE k alice PX 1000 REQUEST r", Reply::Int(10_100));
        let leaves = |reply| op(13_000, 14_000, "DLOCK.RELEASE k alice", Reply::Int(reply));
        assert!(explains(&[enters(10_000), enters(11_000), leaves(1)]));
        assert!(!explains(&[enters(10_000), enters(11_000), leaves(0)]));
    }

    /// alice has the lock, bob waits and is seen waiting, carol waits, alice and then bob release. The waiters get the
    /// replies `bob` and `carol`.
    fn line(bob: Reply, carol: Reply) -> Vec<Op> {
        let fields = [("holders", 1), ("count", 1), ("token", 11_500), ("ttl", 997), ("waiters", 1)];
        let held = info("exclusive", &fields);
        vec![
            alice(),
            op(13_000, 21_000, &format!("{BOB} BLOCK 0"), bob),
            op(14_000, 14_900, "DLOCK.INFO k", Reply::List(held)),
            op(15_000, 22_000, "DLOCK.RLOCK k carol PX 1000 BLOCK 5", carol),
            op(17_000, 17_900, "DLOCK.RELEASE k alice", Reply::Int(1)),
            op(18_000, 18_900, "DLOCK.RELEASE k bob ALL", Reply::Int(1)),
        ]
    }

    #[test]
    fn a_queue_in_order_is_explained() {
        assert!(explains(&line(Reply::Int(17_500), Reply::Int(18_500))));
    }

    #[test]
    fn a_waiter_passed_is_refused() {
        let mut passed = line(Reply::Int(18_500), Reply::Int(17_500));
        passed.truncate(5);
        passed.push(op(18_000, 18_900, "DLOCK.RELEASE k carol", Reply::Int(1)));
        assert!(!explains(&passed));
    }

    #[test]
    fn a_waiter_sent_away_in_time_is_explained_and_one_sent_away_early_is_refused() {
        let waits = |replied| [alice(), op(15_000, replied, "DLOCK.RLOCK k carol PX 1000 BLOCK 5", Reply::Nil)];
        assert!(explains(&waits(22_000)));
        assert!(!explains(&waits(18_000)), "2 ms too early");
    }

    #[test]
    fn a_lease_that_ends_serves_the_queue() {
        let waits = |token| [alice(), op(13_000, 1_020_000, &format!("{BOB} BLOCK 0"), Reply::Int(token))];
        assert!(explains(&waits(1_012_300)));
        assert!(!explains(&waits(1_005_300)), "while alice has it");
    }

    /// alice and bob have a permit each, bob waits for alice's and is seen waiting. He enters again: with no new token.
    fn more_permits(replied: u64) -> Vec<Op> {
        let takes = |sent, replied, options: &str, token| {
            op(sent, replied, &format!("DLOCK.SACQUIRE k {options}"), Reply::Int(token))
        };
        let fields = [("holders", 2), ("count", 2), ("token", 11_500), ("ttl", 997), ("waiters", 1)];
        vec![
            takes(10_000, 10_900, "alice 2 PX 12", 10_500),
            takes(11_000, 11_900, "bob 2 PX 1000", 11_500),
            takes(13_000, replied, "bob 2 PX 1000 BLOCK 50", 11_500),
            op(14_000, 14_900, "DLOCK.INFO k", Reply::List(info("shared", &fields))),
        ]
    }

    #[test]
    fn a_waiter_that_enters_again_when_a_lease_ends_is_explained() {
        assert!(explains(&more_permits(24_000)));
        assert!(!explains(&more_permits(21_000)), "alice has hers until 22 ms");
        let left = |left| [more_permits(24_000), vec![op(25_000, 25_900, "DLOCK.CHECK k 11500", Reply::Int(left))]];
        for (ms, is_right) in [(996, false), (997, true), (998, true), (999, true), (1000, false)] {
            assert_eq!(explains(&left(ms).concat()), is_right, "{ms} ms left of the lease from 22, 23 or 24 ms on");
        }
    }

    #[test]
    fn a_look_between_the_end_of_a_lease_and_the_next_grant_is_explained() {
        let waits = op(13_000, 1_020_000, &format!("{BOB} BLOCK 0"), Reply::Int(1_011_900));
        let looks = |reply| op(1_011_100, 1_011_300, "DLOCK.INFO k", reply);
        let free = info("free", &[("holders", 0), ("count", 0)]);
        let [token, none] = [Reply::Text("token".into()), Reply::Nil];
        let rest = numbers(&[("ttl", 0), ("waiters", 1)]);
        let free = Reply::List([free, vec![token, none], rest].concat());
        assert!(explains(&[alice(), waits.clone(), looks(free)]));
        let fields = [("holders", 1), ("count", 1), ("token", 11_500), ("ttl", 997), ("waiters", 1)];
        let seen = op(14_000, 14_900, "DLOCK.INFO k", Reply::List(info("exclusive", &fields)));
        assert!(!explains(&[alice(), waits, seen, looks(Reply::Nil)]), "bob waits");
    }

    const PERMIT: &str = "DLOCK.SACQUIRE k bob 2 PX 1000";

    #[test]
    fn permits_up_to_the_limit_are_explained_and_one_more_is_refused() {
        let takes =
            |sent: u64, owner: &str, reply| op(sent, sent + 900, &format!("DLOCK.SACQUIRE k {owner} 2 PX 1000"), reply);
        let [first, second] = [10_000, 11_000].map(|sent: u64| (sent, Reply::Int(sent.cast_signed() + 500)));
        let two = [takes(first.0, "alice", first.1), takes(second.0, "carol", second.1)];
        let third = |reply| [two.to_vec(), vec![op(13_000, 13_900, PERMIT, reply)]].concat();
        assert!(explains(&third(Reply::Nil)));
        assert!(!explains(&third(Reply::Int(13_500))), "one too many");
        let gives_back = op(12_000, 12_900, "DLOCK.RELEASE k carol", Reply::Int(1));
        assert!(explains(
            &[two.to_vec(), vec![gives_back], vec![op(13_000, 13_900, PERMIT, Reply::Int(13_500))]].concat()
        ));
    }

    #[test]
    fn a_small_request_that_passes_a_large_one_is_refused() {
        let small =
            |sent: u64, owner: &str, reply| op(sent, sent + 900, &format!("DLOCK.SACQUIRE k {owner} 2 PX 1000"), reply);
        let large = |reply| op(12_000, 21_000, "DLOCK.SACQUIRE k bob 2 PERMITS 2 PX 1000 BLOCK 0", reply);
        let seen = op(13_000, 13_900, "DLOCK.INFO k", {
            let held = info("shared", &[("holders", 1), ("count", 1), ("token", 10_500), ("ttl", 997), ("waiters", 1)]);
            Reply::List(held)
        });
        let leaves = op(20_000, 20_900, "DLOCK.RELEASE k alice", Reply::Int(1));
        let alice = small(10_000, "alice", Reply::Int(10_500));
        let passes = |reply| [alice.clone(), large(Reply::Int(20_500)), seen.clone(), small(15_000, "carol", reply)];
        assert!(explains(&[passes(Reply::Nil).to_vec(), vec![leaves.clone()]].concat()));
        assert!(!explains(&[passes(Reply::Int(15_500)).to_vec(), vec![leaves]].concat()));
    }

    #[test]
    fn several_locks_are_taken_together_or_not_at_all() {
        let both = |reply| op(13_000, 13_900, "DLOCK.MACQUIRE 2 k k+ bob PX 1000", reply);
        let looks = |reply| op(14_000, 14_900, "DLOCK.CHECK k+ 13500", reply);
        assert!(explains(&[alice(), both(Reply::Nil), looks(Reply::Nil)]));
        assert!(!explains(&[alice(), both(Reply::Int(13_500))]), "alice has one of them");
        let release = op(12_100, 12_900, "DLOCK.RELEASE k alice", Reply::Int(1));
        let taken = |reply| [alice(), release.clone(), both(Reply::Int(13_500)), looks(reply)];
        assert!(explains(&taken(Reply::Int(999))));
        assert!(!explains(&taken(Reply::Nil)), "one of them only");
    }

    #[test]
    fn a_request_for_several_locks_waits_until_all_are_free() {
        let both = |reply| op(13_000, 21_000, "DLOCK.MACQUIRE 2 k+ k bob PX 1000 BLOCK 0", reply);
        let release = op(17_000, 17_900, "DLOCK.RELEASE k alice", Reply::Int(1));
        assert!(explains(&[alice(), both(Reply::Int(17_500)), release.clone()]));
        assert!(!explains(&[alice(), both(Reply::Int(15_500)), release]), "alice has one of them");
    }

    fn info(mode: &str, fields: &[(&str, i64)]) -> Vec<Reply> {
        [["mode", mode].map(|text| Reply::Text(text.into())).to_vec(), numbers(fields)].concat()
    }

    fn numbers(fields: &[(&str, i64)]) -> Vec<Reply> {
        fields.iter().flat_map(|(name, number)| [Reply::Text((*name).into()), Reply::Int(*number)]).collect()
    }
}
