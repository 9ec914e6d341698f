#!/usr/bin/env bash
# Tests the package for redis-py as a user gets it: installed from its wheel, not from the checkout.
set -euo pipefail
export DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
python=$(scripts/python) || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
root=$PWD
export DLOCK_COMMAND=${DLOCK_COMMAND:-$root/target/debug/dlock} # which the tests of crates/cli build
scripts/python make

installed=$("$python" -c 'import redis_dlock; print(redis_dlock.__file__)')
[[ $installed == "$root"/target/python/lib/* ]] || { echo "the tests would use $installed"; exit 1; }

oldest=$(scripts/python oldest)
PATH=$root/target/languages/node/bin:$PATH
command -v npm >/dev/null || { echo 'missing: npm, for pyright'; exit 77; }
export DLOCK_PYRIGHT=$root/target/pyright/node_modules/.bin
[[ -x $DLOCK_PYRIGHT/pyright ]] ||
    npm install --prefix "$root/target/pyright" --no-audit --no-fund --loglevel=error pyright

cd clients/python
# Most of the time, tests wait: they run in parts, side by side. `tests` gives a part a server of its own.
parts=$(mktemp -d)
trap 'rm -r "$parts"' EXIT
names=() pids=()
part() {
    names+=("$1")
    "${@:2}" >"$parts/$1" 2>&1 &
    pids+=($!)
}
tests() { env --unset=DLOCK_TEST_HOST --unset=DLOCK_TEST_PORT "$1" -m pytest "${@:2}"; }

part types "$python" -m mypy --cache-dir "$root/target/python/mypy" src tests bench examples
losses=(tests/test_lost.py tests/test_unanswered_renewals.py)
waits=(tests/test_given_up_at_the_grant.py)
late=(tests/test_late_grants.py tests/test_one_heartbeat.py)
limits=(tests/test_time_limits.py tests/test_sessions.py)
sessions=(tests/test_named_sessions.py tests/test_late_copies.py)
tasks=(tests/test_caps.py tests/test_tasks.py)
clusters=(tests/test_cluster.py tests/test_cluster_sessions.py)
outages=(tests/test_outages.py tests/test_tls_and_sentinel.py tests/test_examples.py)
part losses tests "$python" "${losses[@]}"
part waits tests "$python" "${waits[@]}"
part late tests "$python" "${late[@]}"
part limits tests "$python" "${limits[@]}"
part sessions tests "$python" "${sessions[@]}"
part tasks tests "$python" "${tasks[@]}"
part clusters tests "$python" "${clusters[@]}"
part outages tests "$python" "${outages[@]}"
rest=("${losses[@]}" "${waits[@]}" "${late[@]}" "${limits[@]}" "${sessions[@]}" "${tasks[@]}" "${clusters[@]}" "${outages[@]}")
part others tests "$python" "${rest[@]/#/--ignore=}"
# Tests with the oldest redis-py that the package accepts: of the interface of redis-py's own lock, of what happens on
# connections (losses, sessions, unread replies, waits that are given up), and of time limits, which that redis-py
# lacks.
part oldest tests "$oldest" tests/test_as_redis_py.py tests/test_lost_connections.py tests/test_late_copies.py \
    tests/test_sessions.py tests/test_named_sessions.py tests/test_unread_replies.py
part oldest-clusters tests "$oldest" tests/test_cluster_sessions.py -k next_primary
part oldest-limits tests "$oldest" "${losses[@]}" tests/test_time_limits.py
part oldest-waits tests "$oldest" "${waits[@]}" -k 'program or step'
# Programs of the lab: chaos with all clients (its judge, its runs, its programs), adopters, and soak.
part judge "$python" "$root/lab/chaos-clients/test_judge.py"
part runs "$python" "$root/lab/chaos-clients/test_run.py"
part adopters "$python" "$root/lab/adopters/test_rules.py"
part soak "$python" "$root/lab/soak/test_soak.py"
part programs "$python" "$root/lab/chaos-clients/test_programs.py"

failed=0
for each in "${!pids[@]}"; do
    wait "${pids[each]}" || failed=1
    echo "${names[each]}:"
    cat "$parts/${names[each]}"
done
exit $failed
