//! Puts the figures that are kept into `docs/comparison.md`, and draws its plots.

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
    let page = Path::new(DOCS).join(page::PAGE);
    let page = fs::read_to_string(&page).map_err(|error| format!("reading {}: {error}", page.display()))?;
    for (path, text) in page::files(&figures, &page)? {
        let file = Path::new(DOCS).join(&path);
        let folder = file.parent().unwrap_or(Path::new(DOCS));
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, text));
        written.map_err(|error| format!("writing docs/{path}: {error}"))?;
        println!("docs/{path}");
    }
    Ok(())
}
