//! A short run of what `make fuzz-server` does for long.

use std::process::Command;

#[test]
fn the_server_answers_as_the_model_does() {
    plays(&["--seconds", "8"]);
}

/// A request with a short wait takes the place of its first copy, whose owner holds the lock meanwhile: it is granted at
/// once, and the model does not expect the end of its wait. The seed had this case when it was found.
#[test]
fn a_copy_that_takes_a_place_may_be_granted_at_once() {
    plays(&["--seed", "1795939859508", "--rounds", "1"]);
}

fn plays(options: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_dlock-stress")).arg("differential").args(options).output();
    let output = output.unwrap_or_else(|error| panic!("the program does not start: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("no difference"), "{text}");
}
