//! The structure of the module: which file may import which.
//!
//! Files import each other in one direction only, so that each can be read with nothing but those below it. The unsafe
//! folder `src/ffi` is the ground floor: it imports nothing of the rest, and unsafe code is nowhere else.

#![allow(clippy::expect_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which files a file imports, by module path: `commands::acquire`, `ffi::key`.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn files_import_each_other_in_one_direction_only() {
    assert_eq!(circles(&imports()), Vec::<String>::new());
}

#[test]
fn the_unsafe_folder_imports_nothing_from_above() {
    for (file, imported) in imports().iter().filter(|(file, _)| file.starts_with("ffi")) {
        let above: Vec<_> = imported.iter().filter(|name| !name.starts_with("ffi")).collect();
        assert!(above.is_empty(), "src/{file} imports {above:?}");
    }
}

#[test]
fn a_circle_is_found() {
    let imports = |pairs: &[(&str, &[&str])]| -> Imports {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pairs.iter().map(|(file, names)| ((*file).to_owned(), set(names))).collect()
    };
    assert_eq!(circles(&imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), Vec::<String>::new());
    assert_eq!(circles(&imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])), ["b -> c -> b", "c -> b -> c"]);
}

/// The circles: a shortest one for each file that imports itself over others.
fn circles(imports: &Imports) -> Vec<String> {
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

/// Returns the imports of every file of `src/` from the others. `lib.rs` is the contents page: no file imports it.
fn imports() -> Imports {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    let names: BTreeMap<String, PathBuf> = files.into_iter().map(|file| (module_of(&src, &file), file)).collect();
    assert!(names.len() > 20, "found only {names:?}");
    let find = |path: &str| {
        // The longest part of a path that is a file.
        let mut parts: Vec<&str> = path.split("::").collect();
        while !parts.is_empty() && !names.contains_key(&parts.join("::")) {
            parts.pop();
        }
        (!parts.is_empty()).then(|| parts.join("::"))
    };
    names
        .iter()
        .filter(|(name, _)| *name != "lib")
        .map(|(name, file)| {
            let text = std::fs::read_to_string(file).expect("a source file");
            let parent = name.rsplit_once("::").map_or("", |(parent, _)| parent);
            let mut imported = BTreeSet::new();
            for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
                for (at, prefix) in line
                    .match_indices("crate::")
                    .map(|(at, word)| (at + word.len(), String::new()))
                    .chain(line.match_indices("super::").map(|(at, word)| (at + word.len(), format!("{parent}::"))))
                {
                    let rest = line.get(at..).unwrap_or_default();
                    let path: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
                    if let Some(other) =
                        find(format!("{prefix}{path}").trim_end_matches(':')).filter(|other| other != name)
                    {
                        imported.insert(other);
                    }
                }
            }
            (name.clone(), imported)
        })
        .collect()
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
