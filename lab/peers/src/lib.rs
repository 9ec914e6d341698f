//! Figures of dlock and its peers as data, and the page that is written from them.
//!
//! `measure/`, a workspace of its own with the clients of all systems, measures them.

pub mod figures;
pub mod page;
mod plots;
pub mod systems;
mod targets;
mod texts;
mod why;

/// The file of all figures.
pub const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/figures/peers.json");

/// The folder of the page and its plots.
pub const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[cfg(test)]
mod tests;
