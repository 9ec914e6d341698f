#!/usr/bin/env bash
# Tests the store for Symfony's Lock component with the code of Debian's packages. The server is at DLOCK_TEST_HOST and
# DLOCK_TEST_PORT; the script starts another one without the module, at the socket DLOCK_TEST_PLAIN.
set -euo pipefail
: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"

# The setup installs them where it may. Nothing else of the project needs them.
missing() { echo "skipped: the store for Symfony: $1 is not installed"; exit 0; }

has() { php -r 'exit((int) !extension_loaded($argv[1]));' "$1" 2>/dev/null; }
has redis && has pcntl || missing 'PHP with php-redis'
php -r '@include "Symfony/Component/Lock/autoload.php"; exit((int) !interface_exists($argv[1]));' \
    'Symfony\Component\Lock\BlockingStoreInterface' || missing "Symfony's Lock component (php-symfony-lock)"

server=${DLOCK_SERVER:-$(scripts/server)}
home=$(mktemp -d)
trap 'kill "$plain" 2>/dev/null || true; rm -r "$home"' EXIT
export DLOCK_TEST_PLAIN=$home/plain
"$server" --port 0 --unixsocket "$DLOCK_TEST_PLAIN" --save '' --dir "$home" >"$home/log" &
plain=$!
until [[ -S $DLOCK_TEST_PLAIN ]]; do
    kill -0 "$plain" 2>/dev/null || { cat "$home/log"; exit 1; }
    sleep 0.05
done

# The program of the README, which says its token.
{
    echo '<?php require "Symfony/Component/Lock/autoload.php"; require "clients/php/src/DlockStore.php";'
    sed -n '/^```php$/,/^```$/p' clients/php/README.md | sed '/^```/d' |
        sed "s/connect('127.0.0.1', 6379)/connect('$DLOCK_TEST_HOST', $DLOCK_TEST_PORT)/"
} >"$home/readme.php"
php -d error_reporting=E_ALL -d display_errors=stderr "$home/readme.php" | grep -E '^the fencing token is [0-9]{16}$'
php -d error_reporting=E_ALL -d display_errors=stderr clients/php/tests/store.php
