#!/usr/bin/env bash
# Plays the conformance scenarios against the clients of this repository.
set -euo pipefail
export DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
python=$(scripts/python) || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
node=$(scripts/node) || { echo "$node"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
PATH=$PWD/target/languages/node/bin:$PATH
scripts/python make

mkdir -p "$node/test"
cp clients/node/test/conformance.mjs "$node/test/"
pids=()
play() { "$python" tests/conformance/run.py --title "$1" -- "${@:2}" & pids+=($!); }
play 'Python, threads' "$python" clients/python/tests/conformance_adapter.py sync
play 'Python, asyncio' "$python" clients/python/tests/conformance_adapter.py asyncio
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
pids=()
play 'Node.js, ioredis' node "$node/test/conformance.mjs" ioredis
play 'Node.js, node-redis' node "$node/test/conformance.mjs" node-redis
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
for scenario in tests/conformance/scenarios/*.txt; do
    grep -qF "($(basename "$(dirname "$scenario")")/$(basename "$scenario"))" tests/conformance/README.md ||
        { echo "tests/conformance/README.md has no row for $scenario"; failed=1; }
done
exit $failed
