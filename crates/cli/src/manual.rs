//! Man pages and completions, made from the command line's definition.

use std::io::Write;
use std::path::Path;

use clap_complete::Shell;

use crate::parse::command;
use crate::{exit, fail, output};

pub fn completions(shell: Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "dlock", &mut script);
    output::write(|out| out.write_all(&script));
    0
}

/// Prints the page of `dlock` on standard output, or writes all pages into a directory.
pub fn pages(directory: Option<&Path>) -> u8 {
    let Some(directory) = directory else {
        output::write(|out| clap_mangen::Man::new(command()).render(out));
        return 0;
    };
    match clap_mangen::generate_to(command(), directory) {
        Ok(()) => 0,
        Err(error) => fail(exit::OUTPUT, &format!("{}: {error}", directory.display())),
    }
}
