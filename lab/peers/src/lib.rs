//! Figures of dlock and its peers as data, and the page that is written from them.
//!
//! `measure/`, a workspace of its own with the clients of all systems, measures them.

pub mod figures;
pub mod page;
pub mod systems;
mod targets;
mod texts;

/// The file of all figures.
pub const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/figures/peers.json");

/// The page.
pub const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/comparison.md");

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FIGURES, PAGE, page, systems};
    use crate::figures::Figures;

    fn kept() -> Figures {
        serde_json::from_str(&fs::read_to_string(FIGURES).unwrap()).unwrap()
    }

    /// There is no page before anything was measured.
    #[test]
    fn the_page_is_what_the_kept_figures_say() {
        let (there, kept) = (fs::read_to_string(PAGE).ok(), kept());
        let expected = (!kept.systems.is_empty()).then(|| page::write(&kept));
        assert!(there == expected, "docs/comparison.md is not what `make bench-peers` would write");
    }

    #[test]
    fn the_file_is_what_its_figures_are_written_as() {
        assert_eq!(kept().to_json(), fs::read_to_string(FIGURES).unwrap());
    }

    #[test]
    fn every_system_has_figures_of_at_least_three_rounds() {
        let kept = kept();
        for system in &systems::ALL {
            let rounds =
                kept.systems.get(system.name).and_then(|figures| figures.get("alone/median")).map_or(0, Vec::len);
            let is_known = kept.fact("missing").contains(system.name);
            assert!(rounds >= 3 || is_known, "{}: {rounds} rounds, and nobody says that it is missing", system.name);
        }
    }
}
