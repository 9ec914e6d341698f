//! Writes `docs/comparison.md` from the figures that are kept.

use std::fs;
use std::process::ExitCode;

use dlock_comparison::{FIGURES, PAGE, page};

fn main() -> ExitCode {
    let done = fs::read_to_string(FIGURES)
        .map_err(|error| format!("reading {FIGURES}: {error}"))
        .and_then(|text| serde_json::from_str(&text).map_err(|error| format!("{FIGURES}: {error}")))
        .and_then(|figures| fs::write(PAGE, page::write(&figures)).map_err(|error| format!("writing {PAGE}: {error}")));
    match done {
        Ok(()) => {
            println!("docs/comparison.md is written");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dlock-comparison: {error}");
            ExitCode::FAILURE
        }
    }
}
