//! Bound holds over random histories, against a list of them.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use dlock_core::{Hold, Lease, Mode, Owner, Sessions, Token, UnixMs};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Bind(Id, u64, u64, u64),
    Moved(Id, u64, u64),
    Unbind(Id),
    UnbindLock(u8),
    UnbindFrom(u8),
    End(u64),
    /// The first due hold is named, and put off or not.
    Due(u64, bool),
}

/// A lock, an owner and whether the hold is shared.
type Id = (u8, u8, bool);

/// A binding on the list.
#[derive(Clone, Debug)]
struct Bound {
    id: Id,
    client: u64,
    deadline: u64,
    move_at: u64,
    turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    ToCome,
    Due,
    Named,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bindings_are_as_a_list_of_them(steps in vec(step(), 1..60)) {
        let (mut sessions, mut list) = (Sessions::default(), Vec::new());
        for step in steps {
            play(&mut sessions, &mut list, &step);
            compare(&sessions, &list);
        }
        for client in 0..3 {
            play(&mut sessions, &mut list, &Step::End(client));
        }
        prop_assert!(sessions.is_empty() && sessions.next_time().is_none() && sessions.next_due(UnixMs::MAX).is_none());
    }
}

fn play(sessions: &mut Sessions<u8>, list: &mut Vec<Bound>, step: &Step) {
    match *step {
        Step::Bind(id, client, deadline, move_at) => {
            sessions.bind(id.0, &hold(id, deadline), client, UnixMs::new(move_at));
            list.retain(|bound| bound.id != id);
            list.push(Bound { id, client, deadline, move_at, turn: Turn::ToCome });
        }
        Step::Moved(id, deadline, move_at) => {
            sessions.moved(id.0, &hold(id, deadline), UnixMs::new(move_at));
            for bound in list.iter_mut().filter(|bound| bound.id == id) {
                (bound.deadline, bound.move_at, bound.turn) = (deadline, move_at, Turn::ToCome);
            }
        }
        Step::Unbind(id) => {
            let unbound = sessions.unbind(&name(id)).map(|binding| binding.client);
            assert_eq!(unbound, list.iter().find(|bound| bound.id == id).map(|bound| bound.client));
            list.retain(|bound| bound.id != id);
        }
        Step::UnbindLock(lock) => {
            sessions.unbind_lock(&lock);
            list.retain(|bound| bound.id.0 != lock);
        }
        Step::UnbindFrom(lock) => {
            sessions.unbind_where(|other| *other >= lock);
            list.retain(|bound| bound.id.0 < lock);
        }
        Step::End(client) => {
            let ended = sessions.end(client).into_iter().map(|binding| (binding.lock, binding.owner, binding.mode));
            let expected = list.iter().filter(|bound| bound.client == client).map(|bound| name(bound.id));
            assert_eq!(ended.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            list.retain(|bound| bound.client != client);
        }
        Step::Due(now, is_put_off) => due(sessions, list, now, is_put_off),
    }
}

fn due(sessions: &mut Sessions<u8>, list: &mut [Bound], now: u64, is_put_off: bool) {
    let named = sessions.next_due(UnixMs::new(now)).map(|binding| {
        assert_eq!(binding.token, TOKEN);
        (binding.lock, binding.owner.clone(), binding.mode)
    });
    for bound in list.iter_mut().filter(|bound| bound.turn == Turn::ToCome && bound.move_at <= now) {
        bound.turn = Turn::Due;
    }
    let first = list.iter_mut().filter(|bound| bound.turn == Turn::Due).min_by_key(|bound| bound.deadline);
    assert_eq!(named, first.as_ref().map(|bound| name(bound.id)));
    if let (Some(named), Some(first)) = (named, first) {
        first.turn = if is_put_off { Turn::Due } else { Turn::Named };
        if is_put_off {
            sessions.put_off(&named);
        }
    }
}

fn compare(sessions: &Sessions<u8>, list: &[Bound]) {
    assert_eq!((sessions.len(), sessions.is_empty()), (list.len(), list.is_empty()));
    for id in (0..3).flat_map(|lock| (0..2).flat_map(move |owner| [(lock, owner, false), (lock, owner, true)])) {
        let client = list.iter().find(|bound| bound.id == id).map(|bound| bound.client);
        assert_eq!(sessions.client_of(&name(id)), client);
    }
    let to_come = list.iter().filter(|bound| bound.turn == Turn::ToCome).map(|bound| bound.move_at).min();
    let is_due = list.iter().any(|bound| bound.turn == Turn::Due);
    assert_eq!(sessions.next_time().map(UnixMs::get), if is_due { Some(0) } else { to_come });
}

fn step() -> impl Strategy<Value = Step> {
    let id = || (0..3_u8, 0..2_u8, any::<bool>());
    prop_oneof![
        // Deadlines that differ: which of two equal ones is first does not matter.
        6 => (id(), 0..3_u64, any::<u32>(), 1..50_u64).prop_map(|(id, client, deadline, at)| Step::Bind(id, client, deadline.into(), at)),
        3 => (id(), any::<u32>(), 1..50_u64).prop_map(|(id, deadline, at)| Step::Moved(id, deadline.into(), at)),
        2 => id().prop_map(Step::Unbind),
        1 => (0..3_u8).prop_map(Step::UnbindLock),
        1 => (0..4_u8).prop_map(Step::UnbindFrom),
        1 => (0..3_u64).prop_map(Step::End),
        8 => (0..60_u64, any::<bool>()).prop_map(|(now, is_put_off)| Step::Due(now, is_put_off)),
    ]
}

fn name((lock, name, is_shared): Id) -> (u8, Owner, Mode) {
    (lock, Owner::new(&[b'a' + name]).unwrap(), if is_shared { Mode::Shared } else { Mode::Exclusive })
}

fn hold(id: Id, deadline: u64) -> Hold {
    let (_, owner, mode) = name(id);
    Hold { owner, mode, count: 1, lease: Lease::MAX, deadline: UnixMs::new(deadline), token: TOKEN, request: None }
}

const TOKEN: Token = Token::new(7).unwrap();
