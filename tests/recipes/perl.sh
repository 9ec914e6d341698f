#!/usr/bin/env bash
# Runs the recipes in Perl and compares what they print.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

perl -MRedis -MDBD::SQLite -e '' 2>/dev/null || missing 'Perl with libredis-perl and libdbd-sqlite3-perl'
each pl perl
