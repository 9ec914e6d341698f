#!/usr/bin/env bash
# Runs the recipes in Rust, and compares what they print.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

command -v cargo >/dev/null && command -v sqlite3 >/dev/null || missing 'cargo and sqlite3'
# The flags are those of `make test`, which has built the recipes already. Other features would build all crates again.
cargo build --locked --quiet --manifest-path "$root/Cargo.toml" --workspace --features tls --examples
built=${CARGO_TARGET_DIR:-$root/target}/debug/examples

run() { "$built/$(basename "$1" .rs)"; }
each rs run
