# Wait in the queue: one command.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }

cli DLOCK.ACQUIRE recipe:wait alice PX 200 >/dev/null # her lease ends in a moment
token=$(cli DLOCK.ACQUIRE recipe:wait bob PX 30000 BLOCK 60000)
if [[ -n $token ]]; then # empty: the 60 seconds are over
    echo 'bob: granted after waiting'
    cli DLOCK.RELEASE recipe:wait bob TOKEN "$token" >/dev/null
fi
