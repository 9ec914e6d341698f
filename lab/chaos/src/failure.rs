//! The reasons why a run reaches no verdict. A violation of a rule is a verdict, and so it is no failure.

use std::fmt;
use std::io;

/// A reason, in words.
#[derive(Debug)]
pub struct Failure(pub String);

pub type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure(error.to_string())
    }
}

/// Makes a failure of an error.
pub trait Doing<T> {
    /// Adds what was being done in front of the error's text.
    fn doing(self, what: &str) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
