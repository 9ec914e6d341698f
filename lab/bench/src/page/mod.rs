//! `dlock-bench page`: puts the figures that are kept into `docs/benchmarks.md`, and draws its plots.

mod bars;
mod lines;
mod plots;
pub mod tables;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dlock_plots::tables::put;

use crate::error::Error;
use crate::ledger::{self, Ledger};

pub fn run() -> Result<(), Error> {
    for (path, text) in files(&kept()?)? {
        let path = docs().join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io(format!("creating {}", folder.display())))?;
        }
        fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Returns the page with its tables put in, and its plots, by their path below `docs/`.
fn files(kept: &[Ledger]) -> Result<Vec<(PathBuf, String)>, Error> {
    let Some((main, others)) = kept.split_first() else {
        return Err(Error::Usage("no figures are kept in lab/bench/figures/ (make bench)".into()));
    };
    let page = fs::read_to_string(docs().join(PAGE)).map_err(Error::io(format!("reading docs/{PAGE}")))?;
    let page = put(&page, &tables::all(main, others)).map_err(Error::Usage)?;
    let plots = plots::all(main).into_iter().map(|plot| (Path::new("benchmarks").join(plot.file), plot.svg));
    Ok([(PathBuf::from(PAGE), page)].into_iter().chain(plots).collect())
}

/// The path of the page below `docs/`.
const PAGE: &str = "benchmarks.md";

/// Returns all figures that are kept, in one ledger for each server. Servers that were timed come first, the latest one
/// at the front. The others follow, those with the most figures first.
fn kept() -> Result<Vec<Ledger>, Error> {
    let folder = ledger::folder();
    let mut servers: BTreeMap<String, Ledger> = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(Error::io(format!("reading {}", folder.display())))? {
        let path = entry.map_err(Error::io(format!("reading {}", folder.display())))?.path();
        if path.extension().is_some_and(|extension| extension == "txt")
            && let Some(ledger) = Ledger::read(&path)?
        {
            servers.entry(ledger.fact("server").to_owned()).or_default().update(&ledger);
        }
    }
    Ok(ordered(servers.into_values().collect()))
}

fn ordered(mut ledgers: Vec<Ledger>) -> Vec<Ledger> {
    ledgers.sort_by_key(|ledger| Reverse((ledger.fact("date").to_owned(), ledger.figures().count())));
    ledgers
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders;
    use crate::ledger::Figure;
    use crate::mode::Mode;
    use crate::rows::ROWS;
    use crate::targets;

    #[test]
    fn the_page_shows_the_kept_figures() {
        for (path, text) in files(&kept().unwrap()).unwrap() {
            let there = fs::read_to_string(docs().join(&path)).unwrap_or_default();
            assert!(there == text, "docs/{} is not what `make bench` would write", path.display());
        }
    }

    /// README.md and docs/faq.md round the highest ratio to 3 %.
    #[test]
    fn the_most_that_other_keys_pay_is_what_the_page_says() {
        let mut ratios = Vec::new();
        for ledger in kept().unwrap() {
            for (name, _) in contenders::OTHER_COMMANDS {
                let count = |with: &str| Some(ledger.figure(&format!("instructions/none/{name}{with}"))?.median);
                let ratio = |with| Some(count(with)? / count("")?);
                ratios.extend(["-loaded", "-busy"].into_iter().filter_map(ratio));
            }
        }
        let most = ratios.into_iter().fold(0.0, f64::max);
        let page = fs::read_to_string(docs().join(PAGE)).unwrap();
        assert!(page.contains(&format!("The highest on any server counted is {most:.3},")), "{most:.3}");
        assert!((1.0..1.035).contains(&most), "{most}: README.md and docs/faq.md say 3 %");
    }

    #[test]
    fn the_page_is_of_the_server_that_was_timed_last() {
        let ledger = |server: &str, date: Option<&str>, figures: usize| {
            let mut ledger = Ledger::default();
            ledger.note_fact("server", server);
            date.into_iter().for_each(|date| ledger.note_fact("date", date));
            (0..figures).for_each(|number| ledger.note(number.to_string(), Figure::once(1.0)));
            ledger
        };
        let kept = [
            ledger("only counted", None, 3),
            ledger("timed before", Some("2026-11-24"), 9),
            ledger("timed last", Some("2026-12-01"), 8),
            ledger("more is counted", None, 4),
        ];
        let servers: Vec<String> = ordered(kept.into()).iter().map(|ledger| ledger.fact("server").to_owned()).collect();
        assert_eq!(servers, ["timed last", "timed before", "more is counted", "only counted"]);
    }

    #[test]
    fn figures_of_every_contender_and_every_target_are_kept() {
        let kept = kept().unwrap();
        let main = kept.first().unwrap();
        for mode in Mode::ALL {
            let is_known = |name: &str| !contenders::may_lack(name);
            for contender in contenders::all().iter().filter(|it| it.runs_in(mode) && is_known(it.name)) {
                let name = format!("instructions/{}/{}", mode.name(), contender.name);
                assert!(main.figure(&name).is_some(), "{name}");
            }
        }
        let verdicts = targets::judge(&ROWS, main);
        for target in ROWS.iter().flat_map(|row| row.targets) {
            let is_judged = verdicts.iter().any(|verdict| std::ptr::eq(verdict.target, target));
            let may_lack = target.measure.names().into_iter().any(contenders::may_lack);
            assert!(is_judged || may_lack, "{:?} on {}", target.measure, main.fact("server"));
        }
    }
}
