#!/usr/bin/env bash
# The recipes in PHP.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

command -v php >/dev/null && php -r 'exit((int) !(extension_loaded("redis") && extension_loaded("pdo_sqlite")));' ||
    missing 'PHP with php-redis and php-sqlite3'
each php php
