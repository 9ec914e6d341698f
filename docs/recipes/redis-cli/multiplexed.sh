# A connection for many owners, and a second one for waiting.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }
coproc SHARED { cli; }
# Prints a number, or nothing for nil. Fails for an error, which is a line, too.
shared() { echo "$*" >&"${SHARED[1]}" && read -r reply <&"${SHARED[0]}" && [[ $reply =~ ^[0-9]*$ ]] && echo "$reply"; }

# The owner names tell the holds on a connection apart. All holds with SESSION end with it.
alice=$(shared DLOCK.ACQUIRE recipe:multiplexed:a alice PX 10000 SESSION)
bob=$(shared DLOCK.ACQUIRE recipe:multiplexed:b bob PX 200)
[[ -z $alice || -z $bob ]] || echo 'alice and bob: granted on one connection'

# BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
carol=$(cli DLOCK.ACQUIRE recipe:multiplexed:b carol PX 10000 BLOCK 5000)
bound=$(shared DLOCK.RENEW recipe:multiplexed:b carol TOKEN "$carol" SESSION)
[[ $bound != 1 ]] || echo 'carol: waited on another, bound to the first'

shared DLOCK.RELEASE recipe:multiplexed:a alice TOKEN "$alice" >/dev/null
shared DLOCK.RELEASE recipe:multiplexed:b carol TOKEN "$carol" >/dev/null
