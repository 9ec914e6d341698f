//! A short run of what `make fuzz-server` does for long.

use std::process::Command;

#[test]
fn the_server_answers_as_the_model_does() {
    let output = Command::new(env!("CARGO_BIN_EXE_dlock-stress")).args(["differential", "--seconds", "8"]).output();
    let output = output.unwrap_or_else(|error| panic!("the program does not start: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("no difference"), "{text}");
}
