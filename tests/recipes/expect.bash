# The functions that run recipes, and the texts that a recipe prints in every language.
#
#   missing WHAT              this language is not here: says so and ends with 77
#   each EXTENSION COMMAND…   runs all docs/recipes/<language>/<recipe>.<extension> by COMMAND, and compares
#   check RECIPE COMMAND…     runs COMMAND and compares with what that recipe prints

: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
language=$(basename "$0" .sh)
recipes=$root/docs/recipes/$language

declare -A printed=(
    [acquire]=$'alice: granted\nbob: not granted\nalice: released'
    [wait]='bob: granted after waiting'
    [renew]=$'renewed\nnothing to renew'
    [session]='bob: granted when the connection of alice ended'
    [read_write]=$'alice and bob: reading\ncarol: not granted\ncarol: writing'
    [fencing]=$'bob: written\nalice: refused, her token is the older one'
    [multiplexed]=$'alice and bob: granted on one connection\ncarol: waited on another, bound to the first'
    [watch_multi]=$'alice: written\nalice: not written, the lock was lost'
    [semaphore]=$'alice and bob: working\ncarol: not granted\ncarol: working'
    [several]=$'alice: has both\nbob: has neither\nbob: has both'
    [replicas]=$'alice: granted\nalice: released, no replica has it'
)

missing() {
    echo "missing: $1"
    exit 77
}

each() {
    local extension=$1 file recipe
    shift
    for file in "$root/docs/recipes/$language"/*."$extension"; do
        recipe=$(basename "$file" ".$extension")
        check "$recipe" "$@" "$recipes/$recipe.$extension"
    done
}

check() {
    local recipe=$1 real expected=${printed[$1]?}
    shift
    real=$("$@") || { echo "$language/$recipe ended with $?" >&2; exit 1; }
    [[ $real == "$expected" ]] && return
    printf '%s/%s printed\n%s\ninstead of\n%s\n' "$language" "$recipe" "$real" "$expected" >&2
    exit 1
}
