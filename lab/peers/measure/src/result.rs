//! Everything that can go wrong: said in words, since nobody acts on the kind.

use std::error::Error;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// An error that says this.
pub fn failed<T>(what: impl Into<String>) -> Result<T> {
    Err(what.into().into())
}
