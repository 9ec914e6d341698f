//! The plots of docs/benchmarks.md.

use super::bars::{self, Bar};
use super::lines::{self, Series, Titles};
use super::tables::READER_ROWS;
use crate::contenders::{self, Contender, LOCKS_AT_ONCE, SEMAPHORES, SEVERAL, TAKEN};
use crate::ledger::{Figure, Ledger};
use crate::server::RunsOn;
use crate::shown::grouped;
use crate::times::growth::{GROWTHS, Growth};
use crate::times::{WAITERS, Way};

pub struct Plot {
    /// The name of the file below `docs/benchmarks/`.
    pub file: &'static str,
    pub svg: String,
}

/// Returns the plots for which the ledger has figures.
pub fn all(ledger: &Ledger) -> Vec<Plot> {
    let counted = [instructions(ledger), semaphores(ledger), several(ledger)];
    let timed = [pairs(ledger), hand_off(ledger), commands(ledger), readers(ledger), growth(ledger)];
    counted.into_iter().chain(timed).flatten().collect()
}

fn instructions(ledger: &Ledger) -> Option<Plot> {
    let title = "Instructions to acquire and release a lock";
    let bars = pair_bars(ledger, "instructions/none", |figure| grouped(figure.median));
    let subtitle = format!("On {}; less is better", ledger.fact("server"));
    (!bars.is_empty()).then(|| Plot { file: "instructions.svg", svg: bars::plot(title, &subtitle, &bars) })
}

fn pairs(ledger: &Ledger) -> Option<Plot> {
    let title = "Pairs per second, as a ratio to SET NX PX + script";
    let bars = pair_bars(ledger, "pairs-ratio/none/16/hot", |figure| format!("{:.2}", figure.median));
    let subtitle = "Pipeline 16, no persistence; median, lowest and highest of the rounds; more is better";
    (!bars.is_empty()).then(|| Plot { file: "pairs.svg", svg: bars::plot(title, subtitle, &bars) })
}

/// Returns a bar for each contender that has a figure of this sort. `value` makes the text beside the bar.
fn pair_bars(ledger: &Ledger, sort: &str, value: fn(Figure) -> String) -> Vec<Bar> {
    let bar = |contender: Contender| {
        let figure = ledger.figure(&format!("{sort}/{}", contender.name))?;
        let is_own = contender.runs_on == RunsOn::Module;
        Some(Bar { label: contender.label.to_owned(), figure, value: value(figure), is_own })
    };
    contenders::timed().filter_map(bar).collect()
}

fn hand_off(ledger: &Ledger) -> Option<Plot> {
    let title = "Time from a release to the next grant";
    let subtitle = "Median, microseconds; less is better";
    let svg = by_waiters(ledger, "hand-off-p50", title, subtitle)?;
    Some(Plot { file: "hand-off.svg", svg })
}

fn commands(ledger: &Ledger) -> Option<Plot> {
    let title = "Commands that all clients send for one hand-off";
    let subtitle = "Less is better";
    let svg = by_waiters(ledger, "hand-off-commands", title, subtitle)?;
    Some(Plot { file: "commands.svg", svg })
}

/// Plots figures of this sort over the number of waiters, with a line for each way to hand a lock over.
fn by_waiters(ledger: &Ledger, sort: &str, title: &str, subtitle: &str) -> Option<String> {
    let points = |way: Way| {
        let figure = |waiters: usize| ledger.figure(&format!("{sort}/{waiters}/{}", way.name()));
        WAITERS.into_iter().filter_map(|waiters| Some([waiters as f64, figure(waiters)?.median])).collect()
    };
    let series =
        Way::ALL.map(|way| Series { label: way.label().to_owned(), points: points(way), is_own: way == Way::Dlock });
    plotted(series.into(), &Titles { title, subtitle, below: "waiters" })
}

fn readers(ledger: &Ledger) -> Option<Plot> {
    let title = "A read lock beside other readers";
    let titles =
        Titles { title, subtitle: "Microseconds per pair, or per renewal; less is better", below: "other readers" };
    // The numbers of other readers that `contenders::readers` and `contenders::redisson` measure.
    let points = |name: &str| {
        let figure = |others: usize| ledger.figure(&format!("readers/{name}/{others}"));
        [1, 100, 10_000].into_iter().filter_map(|others| Some([others as f64, figure(others)?.median])).collect()
    };
    let series = READER_ROWS.map(|(name, label)| Series {
        label: label.to_owned(),
        points: points(name),
        is_own: name == "rlock",
    });
    Some(Plot { file: "readers.svg", svg: plotted(series.into(), &titles)? })
}

fn growth(ledger: &Ledger) -> Option<Plot> {
    let title = "Server CPU per operation, by the number of locks, waiters or leases";
    let titles = Titles { title, subtitle: "Microseconds per operation; less is better", below: "n" };
    let series = GROWTHS.iter().map(|growth: &Growth| {
        let figure = |size: usize| ledger.figure(&format!("growth/{}/{size}", growth.name));
        let points = growth.sizes.into_iter().filter_map(|size| Some([size as f64, figure(size)?.median])).collect();
        Series { label: growth.label.to_owned(), points, is_own: growth.runs_on == RunsOn::Module }
    });
    Some(Plot { file: "growth.svg", svg: plotted(series.collect(), &titles)? })
}

fn semaphores(ledger: &Ledger) -> Option<Plot> {
    let title = "Instructions to acquire and release a permit";
    let titles = Titles { title, subtitle: "Less is better", below: "permits that others hold" };
    let series = SEMAPHORES.map(|row| sized(ledger, row, TAKEN, "sacquire"));
    Some(Plot { file: "semaphores.svg", svg: plotted(series.into(), &titles)? })
}

fn several(ledger: &Ledger) -> Option<Plot> {
    let title = "Instructions to acquire and release several locks";
    let titles = Titles { title, subtitle: "Less is better", below: "locks" };
    let series = SEVERAL.map(|row| sized(ledger, row, LOCKS_AT_ONCE, "macquire"));
    Some(Plot { file: "several.svg", svg: plotted(series.into(), &titles)? })
}

/// Returns the instructions of one row by size. Each size is a contender of its own, whose name ends with the size. The
/// row `own` is dlock's.
fn sized(ledger: &Ledger, (name, label): (&str, &str), sizes: [usize; 3], own: &str) -> Series {
    let figure = |size: usize| ledger.figure(&format!("instructions/none/{name}-{size}"));
    let points = sizes.into_iter().filter_map(|size| Some([size as f64, figure(size)?.median])).collect();
    Series { label: label.to_owned(), points, is_own: name == own }
}

/// Plots the series that have figures. Returns `None` if none has.
fn plotted(mut series: Vec<Series>, titles: &Titles) -> Option<String> {
    series.retain(|series| !series.points.is_empty());
    (!series.is_empty()).then(|| lines::plot(titles, &series))
}
