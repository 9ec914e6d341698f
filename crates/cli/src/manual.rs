//! Man pages and completions, made from the command line's definition.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::{exit, fail};

pub fn completions(shell: Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dlock", &mut script);
    outcome(io::stdout().write_all(&script))
}

/// Prints the page of `dlock` on standard output, or writes all pages into a directory.
pub fn pages(directory: Option<&Path>) -> u8 {
    outcome(match directory {
        None => clap_mangen::Man::new(Cli::command()).render(&mut io::stdout()),
        Some(directory) => clap_mangen::generate_to(Cli::command(), directory),
    })
}

fn outcome(written: io::Result<()>) -> u8 {
    match written {
        Ok(()) => 0,
        Err(error) => fail(exit::UNAVAILABLE, &error.to_string()),
    }
}
