# Readers share a lock, a writer excludes all others.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }

alice=$(cli DLOCK.RLOCK recipe:read_write alice PX 30000)
bob=$(cli DLOCK.RLOCK recipe:read_write bob PX 30000)
[[ -z $alice || -z $bob ]] || echo 'alice and bob: reading'
[[ -n $(cli DLOCK.WLOCK recipe:read_write carol PX 30000) ]] || echo 'carol: not granted'

cli DLOCK.RELEASE recipe:read_write alice TOKEN "$alice" >/dev/null
cli DLOCK.RELEASE recipe:read_write bob TOKEN "$bob" >/dev/null
carol=$(cli DLOCK.WLOCK recipe:read_write carol PX 30000)
[[ -z $carol ]] || echo 'carol: writing'
cli DLOCK.RELEASE recipe:read_write carol TOKEN "$carol" >/dev/null
