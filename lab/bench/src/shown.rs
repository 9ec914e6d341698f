//! Numbers as people read them.

use crate::ledger::Figure;

/// `12345.4` as `12,345`.
pub fn grouped(number: f64) -> String {
    dlock_plots::tables::grouped(&format!("{number:.0}"))
}

/// `1.52 (1.49–1.55)`.
pub fn spread(figure: Figure) -> String {
    let decimals = if figure.most >= 100.0 { 0 } else { 2 };
    let Figure { median, least, most } = figure;
    format!("{median:.decimals$} ({least:.decimals$}–{most:.decimals$})")
}

/// Two decimals below 10, one below 100, none above.
pub fn short(value: f64) -> String {
    if value >= 1000.0 {
        return grouped(value);
    }
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}
