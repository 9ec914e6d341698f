#!/usr/bin/env bash
# The recipes in Perl.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

perl -MRedis -MDBD::SQLite -e '' 2>/dev/null || missing 'Perl with libredis-perl and libdbd-sqlite3-perl'
each pl perl
