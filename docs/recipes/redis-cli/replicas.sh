# A lock counts only if a replica has it, too. Here there is none, so it does not.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }

# WAIT is for what its own connection has written. After a grant that was waited for (BLOCK), renew first: Redis 7.0.0
# to 7.0.11 do not count that grant as a write of the connection.
{ read -r token && read -r replicas; } < <(printf '%s\n' 'DLOCK.ACQUIRE recipe:replicas alice PX 30000' 'WAIT 1 50' | cli)
[[ $token =~ ^[0-9]*$ ]] || exit 1 # an error is a line, too
[[ -z $token ]] || echo 'alice: granted'
if ((replicas < 1)); then
    cli DLOCK.RELEASE recipe:replicas alice TOKEN "$token" >/dev/null
    echo 'alice: released, no replica has it'
fi
