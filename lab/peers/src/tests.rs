use std::fs;
use std::path::Path;
use std::process::Command;

use crate::figures::{Figures, part};
use crate::systems::ALL;
use crate::{DOCS, FIGURES, page};

fn kept() -> Figures {
    serde_json::from_str(&fs::read_to_string(FIGURES).unwrap()).unwrap()
}

/// Figures of every system and part, each a little different.
fn made_up() -> Figures {
    let mut figures = Figures::default();
    for (place, system) in ALL.iter().enumerate() {
        for (number, figure) in A_FIGURE_OF_EACH_PART.iter().enumerate() {
            for round in 0..3 {
                figures.note(system.name, figure, Some((100 + 10 * place + 3 * number + round) as f64));
            }
        }
    }
    figures
}

const A_FIGURE_OF_EACH_PART: [&str; 8] = [
    "alone/median",
    "pairs/16/rate",
    "pairs/64/rate",
    "hand-off/2/median",
    "hand-off/64/median",
    "hand-off/512/median",
    "waiters/cpu",
    "holder/killed",
];

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(DOCS).join(page)).unwrap()
}

#[test]
fn the_tables_are_what_the_kept_figures_say() {
    let (kept, comparison, quorum) = (kept(), read(page::PAGE), read(page::QUORUM_PAGE));
    assert!(page::comparison(&kept, &comparison).unwrap() == comparison, "docs/comparison.md: make bench-peers");
    assert!(page::quorum(&kept, &quorum).unwrap() == quorum, "docs/quorum.md: make bench-peers");
}

#[test]
fn the_table_of_rivals_is_what_its_figures_say() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages/rivals/table.py");
    assert!(Command::new(table).arg("--check").status().unwrap().success(), "docs/comparison.md: make rivals");
}

#[test]
fn a_figure_that_changes_is_changed_on_the_page() {
    let (page, mut figures) = (read(page::PAGE), made_up());
    let before = page::comparison(&figures, &page).unwrap();
    for round in figures.systems.get_mut("etcd-3").unwrap().get_mut("hand-off/64/median").unwrap() {
        *round = Some(4711.0);
    }
    let after = page::comparison(&figures, &page).unwrap();
    assert!(!before.contains("4,711") && after.contains("4,711"));
}

#[test]
fn the_page_has_the_versions_of_the_servers_and_when_parts_were_measured_again() {
    let mut figures = made_up();
    let facts = [
        ("version/set-nx", "Redis 8.6.2"),
        ("version/etcd-1", "etcd 4.5.6"),
        ("date", "2026-11-01"),
        ("rounds", "3"),
        ("again/alone", "2026-11-02, 5 rounds"),
        ("again/pairs/64", "2026-11-02, 5 rounds"),
    ];
    figures.facts.extend(facts.map(|(name, fact)| (name.to_owned(), fact.to_owned())));
    let page = page::comparison(&figures, &read(page::PAGE)).unwrap();
    for row in [
        "| servers | Redis 8.6.2, etcd 4.5.6,",
        "| measured on | 2026-11-01, 3 rounds |",
        "| measured again | alone, pairs/64: 2026-11-02, 5 rounds |",
    ] {
        assert!(page.contains(row), "{row}");
    }
}

#[test]
fn writing_the_kept_figures_again_gives_the_same_file() {
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
        let of_failover = system.fails_over().then_some("failover/grants");
        for figure in A_FIGURE_OF_EACH_PART.iter().copied().chain(of_failover) {
            let rounds = kept.systems.get(system.name).and_then(|figures| figures.get(figure)).map_or(0, Vec::len);
            let known = kept.failed.iter().filter(|failure| failure.system == system.name);
            let failed = known.filter(|failure| [part(figure), "start"].contains(&&*failure.part)).count();
            assert!(rounds + failed >= 3, "{}, {figure}: {rounds} rounds, {failed} failures", system.name);
        }
    }
}

#[test]
fn a_figure_that_failed_is_named_in_its_cell() {
    let mut figures = made_up();
    figures.systems.get_mut("etcd-1").unwrap().remove("hand-off/64/median");
    let failure = r#"{"system": "etcd-1", "part": "hand-off/64", "round": 2, "why": "lease not found"}"#;
    figures.failed.push(serde_json::from_str(failure).unwrap());
    let page = page::comparison(&figures, &read(page::PAGE)).unwrap();
    let row = page.lines().find(|line| line.starts_with("| etcd, one node")).unwrap();
    assert!(row.contains("| failed |"), "{row}");
}

/// `measure/` is a workspace of its own, so no other build notices when its lock file is out of date.
#[test]
fn the_lock_file_of_measure_knows_the_dependencies_of_the_client() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let manifest = read("../../crates/client/Cargo.toml");
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap();
    let is_always_there = |line: &&str| !line.contains("optional = true");
    let lines =
        section.lines().skip(1).filter(|line| line.contains('=') && !line.starts_with('#')).filter(is_always_there);
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
