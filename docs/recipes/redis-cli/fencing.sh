# A write that a database rejects if a later owner of the lock has written.
set -euo pipefail
cli() { redis-cli -e -h "${DLOCK_TEST_HOST:-127.0.0.1}" -p "${DLOCK_TEST_PORT:-6379}" "$@"; }
database=$(mktemp)
trap 'rm "$database"' EXIT
sqlite3 "$database" "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL);
                     INSERT INTO report VALUES (1, '', 0);"

# Prints how many rows were written: 1 or 0.
write() {
    sqlite3 "$database" "UPDATE report SET body = '$1', fence = $2 WHERE id = 1 AND fence <= $2; SELECT changes();"
}

alice=$(cli DLOCK.ACQUIRE recipe:fencing alice PX 30000)
cli DEL recipe:fencing >/dev/null # her lease ended while she was paused
bob=$(cli DLOCK.ACQUIRE recipe:fencing bob PX 30000)

[[ $(write 'by bob' "$bob") != 1 ]] || echo 'bob: written'
[[ $(write 'by alice' "$alice") != 0 ]] || echo 'alice: refused, her token is the older one'
cli DLOCK.RELEASE recipe:fencing bob TOKEN "$bob" >/dev/null
