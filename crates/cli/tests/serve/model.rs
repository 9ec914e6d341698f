//! Random commands to `dlock serve`, compared with the naive model: a short run of `make fuzz-serve`.

use std::path::PathBuf;

use dlock_stress::differential::{Options, run};

#[test]
fn the_server_answers_as_the_model_does() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_dlock"));
    let (seed, rounds) = (58, 4);
    run(&Options::of_serve(program, seed, rounds)).unwrap_or_else(|difference| panic!("{difference}"));
}
