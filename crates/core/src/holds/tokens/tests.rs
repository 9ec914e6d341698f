//! Compares [`Tokens`] with a sorted map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    /// Adds tokens that are `step` apart, the first at `from`, with deadlines that are `gap` apart.
    Insert { from: u64, step: u64, gap: u64, count: u64 },
    /// Takes neighbouring tokens out.
    Remove { from: Index, count: usize },
    /// Sets the deadlines of neighbouring tokens to this one and to later ones that are `gap` apart.
    SetEnd { from: Index, count: usize, end: u64, gap: u64 },
    /// Takes out a token that is not there, and sets its deadline.
    RemoveOther { token: u64, id: HoldId },
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The order and the live tokens are right after any additions and removals, in runs that are split and emptied.
    #[test]
    fn tokens_are_what_a_sorted_map_says(ops in vec(op(), 1..30)) {
        let (mut tokens, mut plain) = (Tokens::default(), Plain::new());
        let mut next: HoldId = 0;
        for op in ops {
            match op {
                Op::Insert { from, step, gap, count } => {
                    for number in 0..count {
                        let end = UnixMs::new((number * gap) % LAST_MS);
                        tokens.insert(Item { token: token(from + number * step), id: next, end });
                        plain.insert((token(from + number * step), next), end);
                        next += 1;
                    }
                }
                Op::Remove { from, count } => {
                    let from = from.index(plain.len() + 1);
                    let gone: Vec<_> = plain.keys().skip(from).take(count).copied().collect();
                    for (token, id) in gone {
                        tokens.remove(token, id);
                        plain.remove(&(token, id));
                    }
                }
                Op::SetEnd { from, count, end, gap } => {
                    let from = from.index(plain.len() + 1);
                    for (number, ((token, id), plain)) in (0..).zip(plain.iter_mut().skip(from).take(count)) {
                        *plain = UnixMs::new((end + number * gap) % LAST_MS);
                        tokens.set_end(Item { token: *token, id: *id, end: *plain });
                    }
                }
                Op::RemoveOther { token: number, id } => {
                    if !plain.contains_key(&(token(number), id)) {
                        tokens.remove(token(number), id);
                        tokens.set_end(Item { token: token(number), id, end: UnixMs::new(number) });
                    }
                }
            }
            compare(&tokens, &plain);
        }
        plain.keys().for_each(|_| assert!(tokens.free_last()));
        prop_assert!(!tokens.free_last());
        prop_assert_eq!(tokens.iter().next(), None);
    }
}

type Plain = BTreeMap<(Token, HoldId), UnixMs>;

fn compare(tokens: &Tokens, plain: &Plain) {
    let items = || plain.iter().map(|((token, id), end)| Item { token: *token, id: *id, end: *end });
    assert!(tokens.iter().eq(items()));
    assert!(tokens.iter().rev().eq(items().rev()));
    for now in (0..=LAST_MS).step_by(20).map(UnixMs::new) {
        let live: Vec<Item> = items().filter(|item| now < item.end).collect();
        assert!(tokens.live(now).eq(live.iter().copied()));
        assert!(tokens.live(now).rev().eq(live.iter().rev().copied()));
    }
    for token in (0..MOST).step_by(17).map(token) {
        assert!(tokens.with(token).eq(items().filter(|item| item.token == token)));
    }
    for run in &tokens.runs {
        assert!((1..=RUN).contains(&run.items.len()));
        assert_eq!(Some(run.end), run.items.iter().map(|item| item.end).max(), "a run without a live hold is skipped");
    }
}

fn token(number: u64) -> Token {
    Token::new(number + 1).expect("a token")
}

fn op() -> impl Strategy<Value = Op> {
    let insert = (0..MOST, 0..5_u64, 0..40_u64, 1..200_u64);
    let set_end = (any::<Index>(), 1..100_usize, 0..LAST_MS, 0..40_u64);
    prop_oneof![
        4 => insert.prop_map(|(from, step, gap, count)| Op::Insert { from, step, gap, count }),
        3 => (any::<Index>(), 1..200_usize).prop_map(|(from, count)| Op::Remove { from, count }),
        3 => set_end.prop_map(|(from, count, end, gap)| Op::SetEnd { from, count, end, gap }),
        1 => (0..MOST, 0..1000_u64).prop_map(|(token, id)| Op::RemoveOther { token, id }),
    ]
}

const MOST: u64 = 500;
const LAST_MS: u64 = 300;

/// Tokens that only rise, as nearly all do, fill their runs.
#[test]
fn rising_tokens_fill_their_runs() {
    let mut tokens = Tokens::default();
    (0..1000).for_each(|number| tokens.insert(Item { token: token(number), id: number, end: UnixMs::new(1) }));
    assert_eq!(tokens.runs.len(), 1000_usize.div_ceil(RUN));
}
