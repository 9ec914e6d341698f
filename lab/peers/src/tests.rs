use std::fs;
use std::path::Path;

use crate::figures::{Figures, part};
use crate::systems::{ALL, System};
use crate::{DOCS, FIGURES, page};

fn kept() -> Figures {
    serde_json::from_str(&fs::read_to_string(FIGURES).unwrap()).unwrap()
}

/// Figures of every system and part, each a little different.
fn made_up() -> Figures {
    let mut figures = Figures::default();
    for (place, system) in ALL.iter().enumerate() {
        for (number, figure) in PARTS.iter().enumerate() {
            for round in 0..3 {
                figures.note(system.name, figure, Some((100 + 10 * place + 3 * number + round) as f64));
            }
        }
    }
    figures
}

/// A figure of each part.
const PARTS: [&str; 8] = [
    "alone/median",
    "pairs/16/rate",
    "pairs/64/rate",
    "hand-off/2/median",
    "hand-off/64/median",
    "hand-off/512/median",
    "waiters/cpu",
    "holder/killed",
];

/// The files, with their tables in the page that there is.
fn files(figures: &Figures) -> Vec<(String, String)> {
    let page = fs::read_to_string(Path::new(DOCS).join(page::PAGE)).unwrap();
    page::files(figures, &page).unwrap()
}

#[test]
fn the_page_and_its_plots_are_what_the_kept_figures_say() {
    let kept = kept();
    for (path, text) in files(&kept) {
        let there = fs::read_to_string(Path::new(DOCS).join(&path)).ok();
        assert!(there == Some(text), "docs/{path} is not what `make bench-peers` would write");
    }
    let quorum = fs::read_to_string(Path::new(DOCS).join(page::QUORUM_PAGE)).unwrap();
    assert_eq!(page::quorum(&kept, &quorum).unwrap(), quorum);
}

#[test]
fn another_figure_is_another_page() {
    let (figures, mut others) = (made_up(), made_up());
    for round in others.systems.get_mut("etcd-3").unwrap().get_mut("hand-off/64/median").unwrap() {
        *round = Some(4711.0);
    }
    let (files, changed) = (files(&figures), files(&others));
    let different: Vec<&str> =
        files.iter().zip(&changed).filter(|(one, other)| one != other).map(|((path, _), _)| path.as_str()).collect();
    assert_eq!(different, ["comparison.md", "comparison/hand-off.svg"]);
    assert!(changed[0].1.contains("4,711"));
}

#[test]
fn the_file_is_what_its_figures_are_written_as() {
    assert_eq!(kept().to_json(), fs::read_to_string(FIGURES).unwrap());
}

#[test]
fn every_part_of_every_system_has_three_rounds_or_a_reason() {
    let kept = kept();
    if kept.systems.is_empty() {
        println!("skipped: no figures are kept yet");
        return;
    }
    for system in &ALL {
        let last = system.fails_over().then_some("failover/grants");
        for figure in PARTS.iter().copied().chain(last) {
            let rounds = kept.systems.get(system.name).and_then(|figures| figures.get(figure)).map_or(0, Vec::len);
            let known = kept.failed.iter().filter(|failure| failure.system == system.name);
            let failed = known.filter(|failure| [part(figure), "start"].contains(&&*failure.part)).count();
            assert!(rounds + failed >= 3, "{}, {figure}: {rounds} rounds, {failed} failures", system.name);
        }
    }
}

#[test]
fn what_failed_is_named_in_its_cell_and_with_its_reason() {
    let mut figures = made_up();
    figures.systems.get_mut("etcd-1").unwrap().remove("hand-off/512/median");
    let failure = r#"{"system": "etcd-1", "part": "hand-off/512", "round": 2, "why": "lease not found"}"#;
    figures.failed.push(serde_json::from_str(failure).unwrap());
    let (_, page) = files(&figures).remove(0);
    assert!(page.contains("- etcd, one node, `hand-off/512`, round 2: lease not found"));
    let row = page.split("## Hand-off").nth(1).unwrap().lines().find(|line| line.contains("etcd, one node")).unwrap();
    assert!(row.contains("| failed |"), "{row}");
}

#[test]
fn a_long_failover_of_etcd_is_explained_and_a_failed_one_is_no_verdict() {
    let section = |figures: &Figures| {
        let (_, page) = files(figures).remove(0);
        page.split("## A server dies").nth(1).unwrap().split("\n## ").next().unwrap().to_owned()
    };
    for (gap, is_explained) in [(7.04, true), (1.2, false)] {
        let mut figures = made_up();
        for round in [gap, gap - 0.1, gap + 0.1] {
            figures.note("etcd-3", "failover/gap", Some(round));
        }
        let section = section(&figures);
        assert_eq!(section.contains("nobody gets into etcd for 7.04 (6.94–7.14) s:"), is_explained, "{section}");
        assert!(!section.contains("no verdict"), "{section}");
        assert!(section.lines().all(|line| line.starts_with('|') || line.chars().count() <= 120), "{section}");
    }
    let mut figures = made_up();
    let failure = r#"{"system": "etcd-3", "part": "failover", "round": 1, "why": "no grant"}"#;
    figures.failed.push(serde_json::from_str(failure).unwrap());
    let section = section(&figures);
    assert!(section.contains("no verdict") && !section.contains("gets into etcd"), "{section}");
}

/// A cell of the README's table of systems that links a section of the page says that it was run.
#[test]
fn the_readme_links_the_page_only_from_cells_that_were_run() {
    let readme = fs::read_to_string(Path::new(DOCS).join("../README.md")).unwrap();
    let kept = kept();
    let lines: Vec<&str> = readme.lines().filter(|line| line.starts_with('|')).collect();
    let linked: Vec<_> = lines.iter().filter(|line| line.contains(LINK)).collect();
    let head = lines.iter().find(|line| line.contains("| dlock |")).unwrap();
    let names: Vec<&str> = head.split('|').map(str::trim).collect();
    for line in linked {
        for (cell, name) in line.split('|').zip(&names) {
            let Some((_, anchor)) = cell.split_once(LINK) else { continue };
            let anchor = anchor.split(')').next().unwrap();
            assert!(
                was_run(&kept, name, anchor),
                "README.md: the column {name} links {LINK}{anchor}, which was not run"
            );
        }
    }
}

const LINK: &str = "docs/comparison.md#";

/// Returns whether the page has a figure of this system in this section.
fn was_run(figures: &Figures, name: &str, anchor: &str) -> bool {
    let figure = match anchor {
        "one-client-alone" => "alone/median",
        "pairs-a-second" => "pairs/64/rate",
        "hand-off" => "hand-off/64/median",
        "a-thousand-clients-wait" => "waiters/cpu",
        "the-holder-dies" => "holder/killed",
        "a-server-dies" => "failover/grants",
        _ => return false,
    };
    let is_of = |system: &&System| system.label.starts_with(name.trim_matches('*'));
    ALL.iter().filter(is_of).any(|system| figures.spread(system.name, figure).is_some())
}

#[test]
fn only_sections_and_systems_of_the_page_were_run() {
    let figures = made_up();
    let run = [("etcd", "hand-off"), ("dlock", "the-holder-dies"), ("Redlock", "pairs-a-second")];
    let not = [("Consul", "hand-off"), ("etcd", "sources"), ("PostgreSQL", "a-server-dies")];
    assert!(run.iter().all(|(name, anchor)| was_run(&figures, name, anchor)));
    assert!(!not.iter().any(|(name, anchor)| was_run(&figures, name, anchor)));
}

/// `measure/` is a workspace of its own, so no other build notices when its lock file is out of date.
#[test]
fn the_lock_file_of_measure_knows_the_dependencies_of_the_client() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let manifest = read("../../crates/client/Cargo.toml");
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap();
    let optional = |line: &&str| !line.contains("optional = true");
    let lines = section.lines().skip(1).filter(|line| line.contains('=') && !line.starts_with('#')).filter(optional);
    let mut needed: Vec<&str> = lines.map(|line| line.split(['=', '.']).next().unwrap().trim()).collect();
    let lock = read("measure/Cargo.lock");
    let package = lock.split("[[package]]").find(|package| package.contains("\nname = \"dlock-client\"\n")).unwrap();
    let listed = package.split("dependencies = [").nth(1).unwrap().split(']').next().unwrap();
    let mut listed: Vec<&str> =
        listed.split('"').filter(|name| !name.trim_matches([',', '\n', ' ']).is_empty()).collect();
    listed.iter_mut().for_each(|name| *name = name.split(' ').next().unwrap());
    needed.sort_unstable();
    assert_eq!(listed, needed, "cargo update --workspace --manifest-path lab/peers/measure/Cargo.toml");
}
