#!/usr/bin/env bash
# The recipes in Ruby.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

command -v ruby >/dev/null && ruby -rredis -rsqlite3 -e '' 2>/dev/null || missing 'Ruby with ruby-redis and ruby-sqlite3'
each rb ruby
