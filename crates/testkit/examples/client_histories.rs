//! Prints `tests/clients/histories/generated-validity.txt`.

use dlock_testkit::client_histories::generated;

fn main() {
    print!("{}", generated::validity_file(generated::VALIDITIES));
}
