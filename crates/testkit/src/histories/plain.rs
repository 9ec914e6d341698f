//! What the core says, in the plain numbers of the model.

use dlock_core::{Command, LeaseChoice, Mode, Owner, Reentry, Request, Token, UnixMs};

use super::history::{Lease, Who};
use super::naive::{Asked, Hold, What};

/// The owner of this number: some are UUIDs, which are stored in another form.
pub fn owner(who: Who) -> Owner {
    let text =
        if who.is_multiple_of(3) { format!("0f8fad5b-d9cb-469f-a165-{who:012}") } else { format!("client-{who}") };
    Owner::new(text.as_bytes()).expect("a good owner")
}

pub fn who(owner: &Owner) -> Who {
    // Two decimal digits end the UUIDs of this file.
    if let Some([.., last]) = owner.as_uuid() {
        return usize::from(last >> 4) * 10 + usize::from(last & 15);
    }
    let text = String::from_utf8(owner.text().to_vec()).expect("made of text");
    text.trim_start_matches("client-").parse().expect("an owner of this file")
}

/// Holds that come by token, those with one token in the model's order.
pub fn by_token<'a>(holds: impl Iterator<Item = &'a dlock_core::Hold>) -> Vec<Hold> {
    let mut plain: Vec<Hold> = holds.map(plain).collect();
    assert!(plain.is_sorted_by_key(|hold| hold.token), "not by token: {plain:?}");
    plain.sort();
    plain
}

pub fn plain(hold: &dlock_core::Hold) -> Hold {
    Hold {
        token: hold.token.get(),
        owner: who(&hold.owner),
        mode: hold.mode,
        count: u64::from(hold.count),
        lease: hold.lease.get(),
        deadline: hold.deadline.get(),
        request: hold.request.as_deref().map(asked),
        session: None,
    }
}

/// Which command enters so.
pub fn entering(mode: Mode, reentry: Reentry) -> What {
    match (mode, reentry) {
        (Mode::Exclusive, Reentry::Refuse) => What::Acquire,
        (Mode::Exclusive, Reentry::Count) => What::Racquire,
        (Mode::Shared, _) => What::Rlock,
    }
}

pub fn request_of(asked: Asked) -> Request {
    let command = match asked.what {
        What::Acquire => Command::Acquire,
        What::Racquire => Command::Racquire,
        What::Rlock => Command::Rlock,
        What::Wlock => Command::Wlock,
        What::Release => Command::Release,
    };
    Request::new(command, &[asked.id]).expect("an id of one byte")
}

pub fn asked(request: &Request) -> Asked {
    let what = match request.command() {
        Command::Acquire => What::Acquire,
        Command::Racquire => What::Racquire,
        Command::Rlock => What::Rlock,
        Command::Wlock => What::Wlock,
        Command::Release => What::Release,
    };
    Asked { what, id: request.id()[0] }
}

pub fn lease_of(ms: u64) -> dlock_core::Lease {
    dlock_core::Lease::new(ms).expect("a lease in its range")
}

pub fn token_of(token: u64) -> Token {
    Token::new(token).expect("a token in its range")
}

pub fn choice(now: u64, lease: Lease) -> LeaseChoice {
    match lease {
        Lease::Own => LeaseChoice::Own,
        Lease::For(ms) => LeaseChoice::For(lease_of(ms)),
        Lease::Until(more) => LeaseChoice::Until(UnixMs::new(now.saturating_add_signed(more))),
    }
}
