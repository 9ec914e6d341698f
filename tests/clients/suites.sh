#!/usr/bin/env bash
# Tests the runner of other projects' lock tests (tests/suites), and runs the quick ones. `make suites` runs all.
set -euo pipefail
export DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)} DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
python3 tests/suites/test_run.py
tests/suites/run --gate
