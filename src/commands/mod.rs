//! One command one file: its registration and docs, its arguments, its reply.

mod acquire;
mod apply;
mod check;
mod info;
mod log;
mod macquire;
mod options;
#[cfg(debug_assertions)]
mod panic;
mod release;
mod renew;

pub use acquire::{Acquire, Racquire, Rlock, Sacquire, Wlock};
pub use apply::Apply;
pub use check::Check;
pub use info::Info;
pub use log::Log;
pub use macquire::Macquire;
#[cfg(debug_assertions)]
pub use panic::Panic;
pub use release::Release;
pub use renew::Renew;
