#!/usr/bin/env bash
# The recipes for redis-cli.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

command -v redis-cli >/dev/null && command -v sqlite3 >/dev/null || missing 'redis-cli and sqlite3'
each sh bash
