#!/usr/bin/env bash
# Runs the recipes in C, and compares what they print.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

printf '#include <hiredis/hiredis.h>\n#include <sqlite3.h>\n' | cc -fsyntax-only -xc - 2>/dev/null ||
    missing 'a C compiler with libhiredis-dev and libsqlite3-dev'
built=$(mktemp -d)
trap 'rm -r "$built"' EXIT

compile_and_run() {
    cc -std=c11 -Wall -Wextra -Werror -o "$built/program" "$1" -lhiredis -lsqlite3 && "$built/program"
}
each c compile_and_run
