#!/usr/bin/env bash
# Runs the recipes in Erlang. `fencing` needs sqlite3.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

here() { command -v sqlite3 && erl -noshell -eval '{module, _} = code:load_file(eredis), halt(0).'; }
here >/dev/null 2>&1 || missing 'Erlang with erlang-redis-client, and sqlite3'
each escript escript
