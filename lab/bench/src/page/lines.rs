//! A plot of lines: the cost of each way to do a thing by size. Both axes are logarithmic.

use crate::shown::short;
use dlock_plots::{Anchor, Canvas, OWN, RIVALS};

/// A line: one way to do the thing.
pub struct Series {
    pub label: String,
    /// Size and figure. Both are greater than 0, because the axes are logarithmic.
    pub points: Vec<[f64; 2]>,
    /// Whether the way is that of dlock.
    pub is_own: bool,
}

pub struct Titles<'a> {
    pub title: &'a str,
    pub subtitle: &'a str,
    /// The caption of the axis of sizes.
    pub below: &'a str,
}

/// Returns the plot as an SVG file. The last point of each line has the label of the line and the figure.
pub fn plot(titles: &Titles, series: &[Series]) -> String {
    let mut canvas = Canvas::new(WIDTH, HEIGHT);
    canvas.text("head", [0.0, 16.0], Anchor::Start, titles.title);
    canvas.text("dim", [0.0, 35.0], Anchor::Start, titles.subtitle);
    canvas.text("dim", [(LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0], Anchor::Middle, titles.below);
    let points = || series.iter().flat_map(|one| &one.points).copied();
    let (sizes, values) = (Axis::over(points().map(|[x, _]| x)), Axis::of_decades(points().map(|[_, y]| y)));
    let place =
        |[x, y]: [f64; 2]| [LEFT + (WIDTH - LEFT - RIGHT) * sizes.share(x), BOTTOM - (BOTTOM - TOP) * values.share(y)];
    for decade in values.decades() {
        let [_, y] = place([sizes.low, decade]);
        canvas.line("grid", &[[LEFT - 6.0, y], [WIDTH - RIGHT, y]]);
        canvas.text("dim", [LEFT - 12.0, y + 4.0], Anchor::End, &magnitude(decade));
    }
    for size in distinct(points().map(|[x, _]| x)) {
        let [x, _] = place([size, values.low]);
        canvas.text("dim", [x, BOTTOM + 18.0], Anchor::Middle, &magnitude(size));
    }
    let mut labels = Vec::new();
    let mut rivals = RIVALS.into_iter().cycle();
    for one in series {
        let class = if one.is_own { OWN } else { rivals.next().unwrap_or(OWN) };
        let places: Vec<[f64; 2]> = one.points.iter().map(|point| place(*point)).collect();
        canvas.line(class, &places);
        for place in &places {
            canvas.dot(class, *place);
        }
        if let (Some(end), Some([_, value])) = (places.last(), one.points.last()) {
            labels.push((*end, class, format!("{} ({})", one.label, short(*value))));
        }
    }
    for ([x, y], class, label) in apart(labels) {
        canvas.text(class, [x + 10.0, y + 4.5], Anchor::Start, &label);
    }
    canvas.finish(titles.title)
}

/// The place of a label, its class and its text.
type Label<'a> = ([f64; 2], &'a str, String);

/// Moves labels down that would overlap the label above. A label is 16 pixels high.
fn apart(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|([_, a], ..), ([_, b], ..)| a.total_cmp(b));
    let mut free = f64::MIN;
    for ([_, y], ..) in &mut labels {
        *y = y.max(free);
        free = *y + 16.0;
    }
    labels
}

/// A logarithmic scale.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Returns the scale from the lowest to the highest value.
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        Self { low, high }
    }

    /// Returns the scale from the power of ten below the values to the one above.
    fn of_decades(values: impl Iterator<Item = f64>) -> Self {
        let Self { low, high } = Self::over(values);
        Self { low: 10_f64.powf(low.log10().floor()), high: 10_f64.powf(high.log10().ceil()) }
    }

    /// Returns where on the scale a value is: 0 at its low end, 1 at its high end. A scale of one value is all low end.
    fn share(&self, value: f64) -> f64 {
        if self.high > self.low { (value / self.low).ln() / (self.high / self.low).ln() } else { 0.0 }
    }

    /// Returns the powers of ten on a scale from [`Axis::of_decades`]. The limit allows for rounding.
    fn decades(&self) -> Vec<f64> {
        std::iter::successors(Some(self.low), |decade| Some(decade * 10.0))
            .take_while(|decade| *decade <= self.high * 1.01)
            .collect()
    }
}

/// Returns the values in order, each once.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Returns a number in short: 10,000 as `10k`.
fn magnitude(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}

// The size of the plot and the borders of its area, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
/// The room for the labels of the lines, from the right border of the plot.
const RIGHT: f64 = 225.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 330.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_goes_over_whole_decades() {
        let axis = Axis::of_decades([30.0, 4_000.0].into_iter());
        assert_eq!(axis.decades(), [10.0, 100.0, 1_000.0, 10_000.0]);
        assert!((axis.share(10.0), axis.share(10_000.0)) == (0.0, 1.0));
    }

    #[test]
    fn points_of_one_size_have_a_place() {
        let points = vec![[8.0, 100.0], [8.0, 100.0]];
        let titles = Titles { title: "a", subtitle: "b", below: "c" };
        let plotted = plot(&titles, &[Series { label: "d".to_owned(), points, is_own: true }]);
        assert!(!plotted.contains("NaN"), "{plotted}");
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let label = |y| ([0.0, y], "own", String::new());
        let ys: Vec<f64> = apart(vec![label(20.0), label(10.0), label(100.0)]).iter().map(|([_, y], ..)| *y).collect();
        assert_eq!(ys, [10.0, 26.0, 100.0]);
    }
}
