//! The ACL rules that docs/permissions.md has for a subcommand.

use std::path::Path;

/// Returns all rules of the first row of the page whose first cell has this text, also those that only an option needs.
pub fn rules(cell: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/permissions.md");
    // A `|` in a cell is escaped on the page.
    let page = std::fs::read_to_string(path).expect("docs/permissions.md").replace("\\|", "|");
    let has_cell = |line: &&str| line.split('|').nth(1).is_some_and(|first| first.contains(cell));
    let row = page.lines().find(has_cell).unwrap_or_else(|| panic!("no row for {cell}"));
    let rules: Vec<_> = row.split('`').filter(|text| text.starts_with('+')).collect();
    rules.join(" ")
}
