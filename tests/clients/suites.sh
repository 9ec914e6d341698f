#!/usr/bin/env bash
# Plays those lock tests of other projects that are quick. `make suites` plays them all.
set -euo pipefail
export DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)} DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
python3 tests/suites/test_run.py
tests/suites/run --gate
