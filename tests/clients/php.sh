#!/usr/bin/env bash
# Tests the store for Symfony's Lock component, and the locks of Laravel, with the code of Debian's packages. The server
# is at DLOCK_TEST_HOST and DLOCK_TEST_PORT. The script starts more: one without the module, at the socket
# DLOCK_TEST_PLAIN, two with it, at DLOCK_TEST_SECOND and DLOCK_TEST_THIRD, and a cluster of one node at
# DLOCK_TEST_CLUSTER.
set -euo pipefail
: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"

# scripts/setup installs these packages where it can. Without them the tests are skipped.
missing() { echo "skipped: the store for Symfony: $1 is not installed"; exit 0; }

has() { php -r 'exit((int) !extension_loaded($argv[1]));' "$1" 2>/dev/null; }
has redis && has pcntl || missing 'PHP with php-redis'
php -r '@include "Symfony/Component/Lock/autoload.php"; exit((int) !interface_exists($argv[1]));' \
    'Symfony\Component\Lock\BlockingStoreInterface' || missing "Symfony's Lock component (php-symfony-lock)"

server=${DLOCK_SERVER:-$(scripts/server)}
module=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
home=$(mktemp -d)
started=()
# A server that ends deletes its socket: the folder goes once all have ended.
trap '{ kill "${started[@]}"; wait "${started[@]}"; } 2>/dev/null || true; rm -r "$home"' EXIT

# Starts a server at the socket $home/NAME.
start() {
    local name=$1
    shift
    mkdir "$home/$name.d"
    "$server" --port 0 --unixsocket "$home/$name" --save '' --dir "$home/$name.d" "$@" >"$home/$name.log" &
    started+=($!)
    until [[ -S $home/$name ]]; do
        kill -0 "${started[-1]}" 2>/dev/null || { cat "$home/$name.log"; exit 1; }
        sleep 0.05
    done
}
start plain
start second --loadmodule "$module"
start third --loadmodule "$module"
# A cluster of one node needs two free ports, 10,000 apart. The server may notice late that one of them is taken.
tries=20
until grep -q 'Ready to accept' "$home/cluster.log" 2>/dev/null; do
    ((tries--)) || { cat "$home/cluster.log"; exit 1; }
    port=$((12000 + RANDOM % 10000))
    rm -rf "$home/cluster.d" "$home/cluster"
    mkdir "$home/cluster.d"
    "$server" --port "$port" --bind 127.0.0.1 --cluster-enabled yes --cluster-announce-ip 127.0.0.1 \
        --unixsocket "$home/cluster" --save '' --dir "$home/cluster.d" --loadmodule "$module" >"$home/cluster.log" &
    cluster=$!
    started+=("$cluster")
    until grep -q 'Ready to accept' "$home/cluster.log" 2>/dev/null || ! kill -0 "$cluster" 2>/dev/null; do sleep 0.05; done
done
export DLOCK_TEST_CLUSTER=127.0.0.1:$port
php -r '
    for ($end = microtime(true) + 60; ; usleep(20000)) {
        try {
            $redis = new Redis();
            $redis->connect($argv[1]);
            $redis->rawCommand("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
            if (str_contains($redis->rawCommand("CLUSTER", "INFO"), "cluster_state:ok")) break;
        } catch (RedisException $e) {
            if (microtime(true) > $end) throw $e;
        }
    }
' "$home/cluster"
export DLOCK_TEST_PLAIN=$home/plain DLOCK_TEST_SECOND=$home/second DLOCK_TEST_THIRD=$home/third
export DLOCK_TEST_SERVER=$server DLOCK_TEST_MODULE=$module

# Prints the PHP block number N of the README.
block() {
    awk -v wanted="$1" '/^```php$/ { block++; inside = 1; next } /^```$/ { inside = 0 } inside && block == wanted' clients/php/README.md
}

# The first two blocks of the README print a fencing token. The servers are the test's: a socket has port 0.
{
    echo '<?php require "Symfony/Component/Lock/autoload.php"; require "clients/php/src/DlockStore.php";'
    for each in 1 2; do block "$each"; done |
        sed "s|connect('127.0.0.1', 6379)|connect('$DLOCK_TEST_HOST', $DLOCK_TEST_PORT)|
            s|'127.0.0.1', '127.0.0.2', '127.0.0.3'|'$DLOCK_TEST_HOST', '$DLOCK_TEST_SECOND', '$DLOCK_TEST_THIRD'|
            s|connect(\$host, 6379)|connect(\$host, '$DLOCK_TEST_HOST' === \$host ? $DLOCK_TEST_PORT : 0)|"
} >"$home/readme.php"
php -d error_reporting=E_ALL -d display_errors=stderr "$home/readme.php" | grep -E '^the fencing token is [0-9]{16}$'
php -d error_reporting=E_ALL -d display_errors=stderr clients/php/tests/replies.php
php -d error_reporting=E_ALL -d display_errors=stderr clients/php/tests/store.php
# Laravel 8, which this test loads, uses what PHP 8.2 deprecates.
php -d error_reporting='E_ALL & ~E_DEPRECATED' -d display_errors=stderr clients/php/tests/interrupts.php

# The locks of Laravel, with Laravel's own code, if that is installed.
if php -r 'foreach (["Bus", "Cache", "Console", "Queue", "Redis"] as $part) require "Illuminate/$part/autoload.php";
    require "Predis/autoload.php";' >/dev/null 2>&1; then
    { echo '<?php'; block 3; } >"$home/laravel.php"
    DLOCK_TEST_LARAVEL=$home/laravel.php php -d display_errors=stderr clients/php/tests/laravel.php
else
    echo 'skipped: the locks of Laravel: php-predis or one of php-illuminate-{bus,cache,console,queue,redis} is not installed'
fi
