//! A short run of what `make fuzz-server` does for long.

use std::path::Path;
use std::process::Command;

#[test]
fn the_server_answers_as_the_model_does() {
    let module = std::env::var_os("DLOCK_MODULE").unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libdlock.so").into_os_string()
    });
    let output = Command::new(env!("CARGO_BIN_EXE_dlock-stress"))
        .args(["differential", "--seconds", "8"])
        .env("DLOCK_MODULE", module)
        .output();
    let output = output.unwrap_or_else(|error| panic!("the program does not start: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("no difference"), "{text}");
}
