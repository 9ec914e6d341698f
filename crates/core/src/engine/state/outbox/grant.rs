//! The answer to the client of a granted request.

use crate::{Hold, Token, Want};

/// The answer to the client of a granted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token of the hold.
    pub token: Token,
    /// The number of the hold, if the request asks for one.
    pub slot: SlotAnswer,
}

/// The number of the hold in a [`Grant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotAnswer {
    /// The request does not say `SLOT`, so the answer has no place for a number.
    NotAsked,
    /// The request repeats one without `SLOT`, so the hold has no number.
    None,
    /// The hold has this number.
    Number(u32),
}

impl Grant {
    /// Returns the answer to a request for which the owner has this hold.
    #[inline]
    pub(crate) fn of(hold: &Hold, want: Want) -> Grant {
        let slot = if want.has_slot() {
            hold.slot().map_or(SlotAnswer::None, SlotAnswer::Number)
        } else {
            SlotAnswer::NotAsked
        };
        Grant { token: hold.token, slot }
    }

    /// Returns the answer to a request that does not say `SLOT`.
    pub(crate) fn without_slot(token: Token) -> Grant {
        Grant { token, slot: SlotAnswer::NotAsked }
    }
}
