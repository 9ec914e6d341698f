# A lock that ends with its connection: the server renews it, and releases it when the connection closes.
set -euo pipefail

# An error ends the call with a failure (-e). The reply nil is an empty line, because the output is not a terminal.
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }

# A redis-cli that keeps running keeps one connection. It ends when its input is closed, at the latest with this script.
coproc ALICE { cli; }
echo DLOCK.ACQUIRE recipe:session alice PX 10000 SESSION >&"${ALICE[1]}"
read -r token <&"${ALICE[0]}"
[[ $token =~ ^[0-9]+$ ]] || exit 1 # an error is a line, too, and not a number
# … the work …
exec {ALICE[1]}>&- # closes the input of redis-cli, which ends it and its connection

# The wait of 5 s is shorter than alice's lease, so that only the end of her connection can lead to a grant.
token=$(cli DLOCK.ACQUIRE recipe:session bob PX 10000 BLOCK 5000)
if [[ -n $token ]]; then # empty: the 5 seconds are over
    echo 'bob: granted when the connection of alice ended'
    cli DLOCK.RELEASE recipe:session bob TOKEN "$token" >/dev/null
fi
