//! Random commands, each reply held against the naive model: a short run of `make fuzz-serve`.

use std::path::PathBuf;

use dlock_stress::differential::{Options, run};

#[test]
fn the_server_answers_as_the_model_does() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_dlock"));
    run(&Options::of_serve(program, 58, 4)).unwrap_or_else(|difference| panic!("{difference}"));
}
