# Renew a lease while the work goes on.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }

token=$(cli DLOCK.ACQUIRE recipe:renew alice PX 10000)

# Send this whenever about a third of the lease has passed. Without PX, the hold keeps its lease.
[[ $(cli DLOCK.RENEW recipe:renew alice TOKEN "$token") != 1 ]] || echo 'renewed'

cli DLOCK.RELEASE recipe:renew alice TOKEN "$token" >/dev/null
# The lock is lost: stop the work. A renewal never acquires a lock.
[[ -n $(cli DLOCK.RENEW recipe:renew alice TOKEN "$token") ]] || echo 'nothing to renew'
