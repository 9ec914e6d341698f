//! Everything that can go wrong in a measurement.

use std::fmt;
use std::io;

#[derive(Debug)]
pub enum Error {
    /// The command line makes no sense.
    Usage(String),
    /// The operating system refused something.
    Io { doing: String, source: io::Error },
    /// The server did not start, answer or stop as it should.
    Server(String),
    /// A reply was not the one that the load expects.
    Reply(String),
    /// The server has not got what a contender is made of.
    Lacking(String),
    /// Callgrind's result cannot be used.
    Callgrind(String),
    /// An error while one contender was measured.
    Contender { name: &'static str, source: Box<Error> },
    /// A figure is over its limit.
    OverLimit(String),
}

impl Error {
    /// For `map_err`: the error with what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(problem)
            | Self::Server(problem)
            | Self::Reply(problem)
            | Self::Callgrind(problem)
            | Self::OverLimit(problem) => f.write_str(problem),
            Self::Lacking(what) => write!(f, "this server has no {what}"),
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::Contender { name, source } => write!(f, "{name}: {source}"),
        }
    }
}

impl std::error::Error for Error {}
