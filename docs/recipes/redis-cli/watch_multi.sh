# A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }
coproc ALICE { cli; }
# Prints the reply, or nothing for nil. Fails for an error, which is a line, too.
alice() {
    echo "$*" >&"${ALICE[1]}" && read -r reply <&"${ALICE[0]}" && [[ $reply =~ ^([0-9]*|OK|QUEUED)$ ]] && echo "$reply"
}

# Prints the reply of EXEC: nothing if the lock changed hands.
write() {
    local token=$1 value=$2 meanwhile=$3 left
    alice WATCH recipe:watch_multi >/dev/null
    left=$(alice DLOCK.CHECK recipe:watch_multi "$token")
    [[ -n $left ]] || return 0
    $meanwhile >/dev/null
    alice MULTI >/dev/null
    alice SET recipe:value "$value" >/dev/null
    alice EXEC
}

token=$(alice DLOCK.ACQUIRE recipe:watch_multi alice PX 30000)
[[ $(write "$token" one true) != OK ]] || echo 'alice: written'
[[ -n $(write "$token" two 'cli DEL recipe:watch_multi') ]] || echo 'alice: not written, the lock was lost'
