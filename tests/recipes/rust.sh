#!/usr/bin/env bash
# The recipes in Rust. `cargo test` has built them already.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

command -v cargo >/dev/null && command -v sqlite3 >/dev/null || missing 'cargo and sqlite3'
# With what `make test` builds, so that nothing is built again with other features.
cargo build --locked --quiet --manifest-path "$root/Cargo.toml" --workspace --features tls --examples
built=${CARGO_TARGET_DIR:-$root/target}/debug/examples

run() { "$built/$(basename "$1" .rs)"; }
each rs run
