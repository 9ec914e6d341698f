//! Puts the tables of the kept figures into `docs/comparison.md` and `docs/quorum.md`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use dlock_comparison::figures::Figures;
use dlock_comparison::{DOCS, FIGURES, page};

fn main() -> ExitCode {
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dlock-comparison: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<(), String> {
    let text = fs::read_to_string(FIGURES).map_err(|error| format!("reading {FIGURES}: {error}"))?;
    let figures = Figures::from_json(&text).map_err(|error| format!("{FIGURES}: {error}"))?;
    let comparison = page::comparison(&figures, &read(page::PAGE)?)?;
    let quorum = page::quorum(&figures, &read(page::QUORUM_PAGE)?)?;
    for (path, text) in [(page::PAGE, comparison), (page::QUORUM_PAGE, quorum)] {
        fs::write(Path::new(DOCS).join(path), text).map_err(|error| format!("writing docs/{path}: {error}"))?;
        println!("docs/{path}");
    }
    Ok(())
}

fn read(page: &str) -> Result<String, String> {
    fs::read_to_string(Path::new(DOCS).join(page)).map_err(|error| format!("reading docs/{page}: {error}"))
}
