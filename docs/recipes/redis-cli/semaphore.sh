# At most two at a time.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }
enter() { cli DLOCK.SACQUIRE recipe:semaphore "$1" 2 PX 30000; }
leave() { cli DLOCK.RELEASE recipe:semaphore "$1" TOKEN "$2" >/dev/null; }

alice=$(enter alice)
bob=$(enter bob)
[[ -z $alice || -z $bob ]] || echo 'alice and bob: working'
[[ -n $(enter carol) ]] || echo 'carol: not granted'

leave bob "$bob"
carol=$(enter carol)
[[ -z $carol ]] || echo 'carol: working'
leave carol "$carol"
leave alice "$alice"
