# Acquire a lock, or learn at once that another owner holds it.
set -euo pipefail

# An error ends the call with a failure (-e). The reply nil is an empty line, because the output is not a terminal.
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }

token=$(cli DLOCK.ACQUIRE recipe:acquire alice PX 30000)
[[ -z $token ]] || echo 'alice: granted'
[[ -n $(cli DLOCK.ACQUIRE recipe:acquire bob PX 30000) ]] || echo 'bob: not granted'

# The release carries the token, so a late release cannot affect the next hold.
[[ $(cli DLOCK.RELEASE recipe:acquire alice TOKEN "$token") != 1 ]] || echo 'alice: released'
