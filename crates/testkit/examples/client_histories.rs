//! Writes `generated-validity.txt` and `generated-attempt.txt` into a folder.

use std::path::Path;

use dlock_testkit::client_histories::generated::{ATTEMPTS, VALIDITIES, attempt_file, validity_file};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "tests/clients/histories".to_owned());
    let folder = Path::new(&folder);
    std::fs::write(folder.join("generated-validity.txt"), validity_file(VALIDITIES))?;
    std::fs::write(folder.join("generated-attempt.txt"), attempt_file(ATTEMPTS))
}
