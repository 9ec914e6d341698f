//! `INFO dlock`.

use crate::ffi::info::Section;
use crate::state::{ServerEngine, use_engine};

/// Writes the section.
pub fn write(section: &mut Section) {
    let read = |engine: &mut ServerEngine| engine.info(env!("CARGO_PKG_VERSION"));
    let Ok(fields) = use_engine(read) else { return };
    fields.iter().for_each(|(name, value)| section.text(name, value));
}
