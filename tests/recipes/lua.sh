#!/usr/bin/env bash
# The recipes in Lua. Its numbers are exact up to 2^53 in every version, and from 5.3 on they are printed exactly, too.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

lua5.3 -e 'require "redis" require "luasql.sqlite3"' 2>/dev/null || missing 'Lua 5.3 with lua-redis and lua-sql-sqlite3'
each lua lua5.3
