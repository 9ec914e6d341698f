# Two locks or none, in one request. In a cluster both names are in one slot: the same {word}.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }
from='{recipe}:from' to='{recipe}:to' other='{recipe}:other'

# A single token for both; each is released and renewed by its name.
alice=$(cli DLOCK.MACQUIRE 2 "$from" "$to" alice PX 30000)
[[ -z $alice ]] || echo 'alice: has both'
bob=$(cli DLOCK.MACQUIRE 2 "$to" "$other" bob PX 30000)
[[ -n $bob || -n $(cli DLOCK.INFO "$other") ]] || echo 'bob: has neither'

for name in "$from" "$to"; do cli DLOCK.RELEASE "$name" alice TOKEN "$alice" >/dev/null; done
bob=$(cli DLOCK.MACQUIRE 2 "$to" "$other" bob PX 30000 BLOCK 5000)
[[ -z $bob ]] || echo 'bob: has both'
for name in "$to" "$other"; do cli DLOCK.RELEASE "$name" bob TOKEN "$bob" >/dev/null; done
