//! The structure of the crates: which file may import which.
//!
//! Files import each other in one direction only, so that each can be read with nothing but those below it. A file
//! that names the files of its own folder is their page of contents, which is no import. The engine has three layers:
//! `state` imports neither of the others, `visit` may import `state`, and `inputs` may import both. The unsafe folder
//! `src/ffi` imports nothing of the rest of the module, and unsafe code is nowhere else.

#![allow(clippy::expect_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files that a file imports, by module path: `commands::acquire`, `ffi::key`.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn files_import_each_other_in_one_direction_only() {
    let crates = crates();
    assert!(crates.len() > 10, "found only {crates:?}");
    let all = crates.iter().flat_map(|folder| {
        let shown = folder.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(folder).display().to_string();
        cycles(&imports(folder)).into_iter().map(move |cycle| format!("{shown}: {cycle}"))
    });
    assert_eq!(all.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn the_unsafe_folder_imports_nothing_from_above() {
    for (file, imported) in imports(&folder("src")).iter().filter(|(file, _)| file.starts_with("ffi")) {
        let above: Vec<_> = imported.iter().filter(|name| !name.starts_with("ffi")).collect();
        assert!(above.is_empty(), "src/{file} imports {above:?}");
    }
}

#[test]
fn nothing_in_the_engine_imports_from_a_layer_above() {
    // The lowest layer first. The engine's other files are below them all.
    let layers = ["engine::state", "engine::visit", "engine::inputs"];
    let layer = |file: &str| layers.iter().rposition(|layer| file.starts_with(layer)).map_or(0, |at| at + 1);
    let imports = imports(&folder("crates/core/src"));
    let engine: Vec<_> = imports.iter().filter(|(file, _)| file.starts_with("engine::")).collect();
    assert!(engine.iter().any(|(file, _)| layer(file) == layers.len()), "the engine is elsewhere");
    for (file, imported) in engine {
        let above: Vec<_> = imported.iter().filter(|other| layer(other) > layer(file)).collect();
        assert!(above.is_empty(), "{file} imports {above:?}");
    }
}

#[test]
fn a_cycle_of_imports_is_found() {
    let imports = |pairs: &[(&str, &[&str])]| -> Imports {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pairs.iter().map(|(file, names)| ((*file).to_owned(), set(names))).collect()
    };
    assert_eq!(cycles(&imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), Vec::<String>::new());
    assert_eq!(cycles(&imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])), ["b -> c -> b", "c -> b -> c"]);
}

/// Returns the cycles: a shortest one for each file that imports itself by way of others.
fn cycles(imports: &Imports) -> Vec<String> {
    let mut found = Vec::new();
    for start in imports.keys() {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        let mut at = 0;
        while let Some(way) = ways.get(at).cloned() {
            at += 1;
            for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                if next == start {
                    found.push([way.clone(), vec![next.clone()]].concat().join(" -> "));
                    at = ways.len();
                    break;
                }
                if seen.insert(next.clone()) {
                    ways.push([way.clone(), vec![next.clone()]].concat());
                }
            }
        }
    }
    found
}

/// The folders with the sources of the workspace's crates.
fn crates() -> Vec<PathBuf> {
    let manifest = std::fs::read_to_string(folder("Cargo.toml")).expect("the manifest of the workspace");
    let members = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).expect("members").0;
    let members = members.split(',').map(|member| member.trim().trim_matches('"')).filter(|member| !member.is_empty());
    members.map(|member| folder(member).join("src")).chain([folder("src")]).filter(|src| src.is_dir()).collect()
}

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the imports of every file below `src` from the others there. A crate's first file is its page of contents: no
/// file imports it. Tests are left out.
fn imports(src: &Path) -> Imports {
    let mut files = Vec::new();
    collect(src, &mut files);
    let files = files.into_iter().map(|file| (module_of(src, &file), file));
    let names: BTreeMap<String, PathBuf> = files.filter(|(name, _)| !name.ends_with("tests")).collect();
    let is_first = |name: &str| ["lib", "main"].contains(&name);
    let find = |path: &str| {
        // The longest part of a path that is a file.
        let mut parts: Vec<&str> = path.split("::").collect();
        while !parts.is_empty() && !names.contains_key(&parts.join("::")) {
            parts.pop();
        }
        (!parts.is_empty()).then(|| parts.join("::"))
    };
    let of = |name: &str, file: &Path| {
        let text = std::fs::read_to_string(file).expect("a source file");
        let paths = paths_in(&text, name);
        let found = paths.iter().filter_map(|path| find(path)).filter(|other| other != name && !is_first(other));
        found.collect::<BTreeSet<_>>()
    };
    let files = names.iter().filter(|(name, _)| !is_first(name));
    files.map(|(name, file)| (name.clone(), of(name, file))).collect()
}

/// Returns the paths of the crate that a file names, from the crate's root on: `use super::{a, b::C}` names two.
fn paths_in(text: &str, name: &str) -> Vec<String> {
    let parent = name.rsplit_once("::").map_or("", |(parent, _)| parent);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    for (word, prefix) in [("crate::", String::new()), ("super::", format!("{parent}::"))] {
        for (at, _) in code.match_indices(word) {
            let rest = code.get(at + word.len()..).unwrap_or_default();
            let path: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
            let list =
                rest.get(path.len()..).and_then(|rest| rest.strip_prefix('{')).and_then(|rest| rest.split_once('}'));
            let ends = list.map_or(vec![""], |(list, _)| list.split(',').map(str::trim).collect());
            paths.extend(ends.iter().map(|end| {
                let end: String = end.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
                format!("{prefix}{path}{end}").trim_start_matches("::").trim_end_matches(':').to_owned()
            }));
        }
    }
    paths
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn module_of(src: &Path, file: &Path) -> String {
    let path = file.strip_prefix(src).expect("a file below src").with_extension("");
    let name = path.to_string_lossy().replace('/', "::");
    name.strip_suffix("::mod").map_or(name.clone(), str::to_owned)
}
