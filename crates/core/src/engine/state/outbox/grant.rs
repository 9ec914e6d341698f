//! The answer to the client of a granted request.

use crate::{Hold, Token, Want};

/// The answer to the client of a granted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token of the hold.
    pub token: Token,
    /// The number of the hold, for a request that asks for one.
    pub slot: SlotAnswer,
}

/// The number of the hold in a [`Grant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotAnswer {
    /// The answer has no number: the request does not say `SLOT`.
    NotAsked,
    /// The hold has none: it was granted to the same request without `SLOT`.
    None,
    /// The number.
    Number(u32),
}

impl Grant {
    /// Returns the answer to a request that leads to this hold.
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
