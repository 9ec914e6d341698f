//! Translates the core's values into the plain numbers of the model, and back.

use dlock_core::{LeaseChoice, Owner, RequestId, SessionId, UnixMs};

use crate::histories::values::User;
use crate::histories::values::{Asked, KEYS, KeyNo, Lease, SessionNo, Who};
use crate::keyspace::KeyName;

/// Returns the owner with this number. Every third is a UUID, which is stored in another form.
pub fn owner(who: Who) -> Owner {
    let text =
        if who.is_multiple_of(3) { format!("0f8fad5b-d9cb-469f-a165-{who:012}") } else { format!("client-{who}") };
    Owner::new(text.as_bytes()).expect("a valid owner")
}

/// Returns the number of an owner.
pub fn who(owner: &Owner) -> Who {
    let text = String::from_utf8(owner.text().to_vec()).expect("an owner in UTF-8");
    let number = text.rsplit('-').next().expect("a number at the end");
    number.parse().expect("an owner that `owner` has returned")
}

pub fn key_name(key: KeyNo) -> KeyName {
    let (db, name) = KEYS[key];
    (db, name.as_bytes().to_vec())
}

pub fn request((command, id): Asked) -> RequestId {
    RequestId::new(command, &[id]).expect("an id of one byte")
}

pub fn asked(request: &RequestId) -> Asked {
    (request.command(), request.id()[0])
}

pub fn session(id: SessionNo) -> SessionId {
    SessionId::new(format!("session-{id}").as_bytes()).expect("a short id")
}

pub fn user(user: User) -> &'static [u8] {
    if user == 0 { b"default" } else { b"other" }
}

pub fn lease(ms: u64) -> dlock_core::Lease {
    dlock_core::Lease::new(ms).expect("a lease in its range")
}

pub fn lease_choice(lease: Lease) -> LeaseChoice {
    match lease {
        Lease::Own => LeaseChoice::Own,
        Lease::For(ms) => LeaseChoice::For(self::lease(ms)),
        Lease::Until(at) => LeaseChoice::Until(UnixMs::new(at)),
    }
}

pub fn token(number: u64) -> dlock_core::Token {
    dlock_core::Token::new(number).expect("a token in its range")
}
