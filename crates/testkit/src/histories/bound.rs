//! Bound holds, as simply as they can be kept: in a list.

use dlock_core::{Hold, Lease, Mode, Owner, Sessions, Token, UnixMs};

/// One thing that happens to bound holds.
#[derive(Clone, Debug)]
pub enum Step {
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
pub type Id = (u8, u8, bool);

/// A binding on the list.
#[derive(Clone, Debug)]
pub struct Bound {
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

/// Plays a step on both; panics where they do not agree.
pub fn play(sessions: &mut Sessions<u8>, list: &mut Vec<Bound>, step: &Step) {
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

/// Everything that can be seen.
pub fn compare(sessions: &Sessions<u8>, list: &[Bound]) {
    assert_eq!((sessions.len(), sessions.is_empty()), (list.len(), list.is_empty()));
    for id in (0..3).flat_map(|lock| (0..2).flat_map(move |owner| [(lock, owner, false), (lock, owner, true)])) {
        let client = list.iter().find(|bound| bound.id == id).map(|bound| bound.client);
        assert_eq!(sessions.client_of(&name(id)), client);
    }
    let to_come = list.iter().filter(|bound| bound.turn == Turn::ToCome).map(|bound| bound.move_at).min();
    let is_due = list.iter().any(|bound| bound.turn == Turn::Due);
    assert_eq!(sessions.next_time().map(UnixMs::get), if is_due { Some(0) } else { to_come });
}

/// Whether nothing is bound and nothing due.
pub fn is_over(sessions: &mut Sessions<u8>) -> bool {
    sessions.is_empty() && sessions.next_time().is_none() && sessions.next_due(UnixMs::MAX).is_none()
}

fn name((lock, name, is_shared): Id) -> (u8, Owner, Mode) {
    (lock, Owner::new(&[b'a' + name]).unwrap(), if is_shared { Mode::Shared } else { Mode::Exclusive })
}

fn hold(id: Id, deadline: u64) -> Hold {
    let (_, owner, mode) = name(id);
    Hold { owner, mode, count: 1, lease: Lease::MAX, deadline: UnixMs::new(deadline), token: TOKEN, request: None }
}

const TOKEN: Token = Token::new(7).unwrap();
