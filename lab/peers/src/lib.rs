//! Figures of dlock and its peers as data, and the tables that are made of them.
//!
//! `measure/`, a workspace of its own with the clients of all systems, measures them.

pub mod figures;
pub mod page;
pub mod systems;

/// The file of all figures.
pub const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/figures/peers.json");

/// The folder of the pages.
pub const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[cfg(test)]
mod tests;
