//! A plot of bars, one below the other: the same thing done in several ways.

use crate::ledger::Figure;
use dlock_plots::{Anchor, Canvas, OWN};

pub struct Bar {
    pub label: String,
    pub figure: Figure,
    /// The text after the bar.
    pub value: String,
    pub is_own: bool,
}

/// Draws the bars. The subtitle says whether less or more is better.
pub fn plot(title: &str, subtitle: &str, bars: &[Bar]) -> String {
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    let mut canvas = Canvas::new(WIDTH, height);
    canvas.text("head", [0.0, 16.0], Anchor::Start, title);
    canvas.text("dim", [0.0, 35.0], Anchor::Start, subtitle);
    let most = bars.iter().map(|bar| bar.figure.most).fold(f64::MIN_POSITIVE, f64::max);
    let room = WIDTH - LABELS - VALUES;
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let middle = y + ROW / 2.0;
        let at = |value: f64| LABELS + room * value / most;
        let (label, class) = if bar.is_own { (OWN, OWN) } else { ("ink", "plain") };
        canvas.text(label, [LABELS - 8.0, middle + 4.5], Anchor::End, &bar.label);
        canvas.bar(class, [LABELS, y + 3.0], (at(bar.figure.median) - LABELS).max(1.0), ROW - 6.0);
        let Figure { least, most, .. } = bar.figure;
        // The range of the rounds.
        if least < most {
            canvas.line("mark", &[[at(least), middle], [at(most), middle]]);
            for end in [least, most] {
                canvas.line("mark", &[[at(end), middle - 3.0], [at(end), middle + 3.0]]);
            }
        }
        canvas.text("ink", [at(most) + 8.0, middle + 4.5], Anchor::Start, &bar.value);
    }
    canvas.finish(title)
}

/// The width of the plot, in the units of its SVG, as all lengths here.
const WIDTH: f64 = 760.0;
/// The width of the labels' column.
const LABELS: f64 = 220.0;
/// The width of the values behind the longest bar.
const VALUES: f64 = 110.0;
/// The height of the title and the subtitle.
const TOP: f64 = 48.0;
/// The height of a bar and its space.
const ROW: f64 = 24.0;
