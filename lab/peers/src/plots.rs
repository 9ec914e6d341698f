//! Plots of the figures that the targets are about: a bar for each system, the systems of a class together, on a scale
//! of powers of ten.

use dlock_plots::{Anchor, Canvas, OWN};

use crate::figures::{Figures, Spread};
use crate::page::number;
use crate::systems::{ALL, Kept, System};

/// A picture of the page.
pub struct Plot {
    pub file: &'static str,
    pub svg: String,
}

/// Those for which there are figures.
pub fn all(figures: &Figures) -> Vec<Plot> {
    let plots = [
        ("alone.svg", "alone/median", "Acquire and release, one client", "median in µs; shorter is better"),
        ("pairs.svg", "pairs/64/rate", "Pairs a second with 64 clients", "longer is better"),
        ("hand-off.svg", "hand-off/64/median", "Hand-off with 64 waiters", "median in µs; shorter is better"),
    ];
    let plots = plots.into_iter().filter_map(|(file, figure, title, subtitle)| {
        let svg = plot(figures, figure, title, &format!("{subtitle}. Each line is ten times the one before it."))?;
        Some(Plot { file, svg })
    });
    plots.collect()
}

fn plot(figures: &Figures, figure: &str, title: &str, subtitle: &str) -> Option<String> {
    let spread = |system: &System| {
        let spread = figures.spread(system.name, figure)?;
        (spread.least > 0.0 && spread.most.is_finite()).then_some(spread)
    };
    let known = || ALL.iter().filter_map(spread);
    let low = known().map(|spread| spread.least).reduce(f64::min)?.log10().floor();
    let high = known().map(|spread| spread.most).reduce(f64::max)?.log10().ceil().max(low + 1.0);
    let at = |value: f64| LABELS + (WIDTH - LABELS - VALUES) * (value.log10() - low) / (high - low);
    let rows = ALL.len() + Kept::ALL.len();
    let bottom = TOP + ROW * rows as f64;
    let mut canvas = Canvas::new(WIDTH, bottom + 24.0);
    canvas.text("head", [0.0, 16.0], Anchor::Start, title);
    canvas.text("dim", [0.0, 35.0], Anchor::Start, subtitle);
    let mut power = low;
    while power <= high {
        let value = 10_f64.powf(power);
        canvas.line("grid", &[[at(value), TOP], [at(value), bottom]]);
        let text = if value < 100.0 { value.to_string() } else { number(value) };
        canvas.text("dim", [at(value), bottom + 16.0], Anchor::Middle, &text);
        power += 1.0;
    }
    let mut y = TOP;
    for kept in Kept::ALL {
        canvas.text("dim", [0.0, y + 16.0], Anchor::Start, kept.label());
        y += ROW;
        for system in ALL.iter().filter(|system| system.kept == kept) {
            let middle = y + ROW / 2.0;
            let (label, class) = if system.made.is_ours() { (OWN, OWN) } else { ("ink", "plain") };
            canvas.text(label, [LABELS - 8.0, middle + 4.5], Anchor::End, &system.label.replace('`', ""));
            match spread(system) {
                Some(spread) => bar(&mut canvas, class, spread, y, at),
                None => canvas.text("dim", [LABELS + 8.0, middle + 4.5], Anchor::Start, "not measured"),
            }
            y += ROW;
        }
    }
    Some(canvas.finish(title))
}

/// From the least power to the median, with a mark from the least to the most, and the median behind it.
fn bar(canvas: &mut Canvas, class: &str, spread: Spread, y: f64, at: impl Fn(f64) -> f64) {
    let Spread { median, least, most } = spread;
    let middle = y + ROW / 2.0;
    canvas.bar(class, [LABELS, y + 3.0], (at(median) - LABELS).max(1.0), ROW - 6.0);
    if least < most {
        canvas.line("mark", &[[at(least), middle], [at(most), middle]]);
        for end in [least, most] {
            canvas.line("mark", &[[at(end), middle - 3.0], [at(end), middle + 3.0]]);
        }
    }
    canvas.text("ink", [at(most) + 8.0, middle + 4.5], Anchor::Start, &number(median));
}

const WIDTH: f64 = 890.0;
/// Of the labels' column.
const LABELS: f64 = 350.0;
/// Of the values behind the longest bar.
const VALUES: f64 = 70.0;
const TOP: f64 = 48.0;
const ROW: f64 = 22.0;
