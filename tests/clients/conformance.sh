#!/usr/bin/env bash
# Plays the conformance scenarios against the clients of this repository. With DLOCK_THROUGH=one, sentinel or quorum,
# through an agent over that; with DLOCK_THROUGH=serve, on `dlock serve`.
set -euo pipefail
export DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
python=$(scripts/python) || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
node=$(scripts/node) || { echo "$node"; exit 77; }
javac -version >/dev/null 2>&1 || { echo 'missing: a JDK, 11 or later (default-jdk-headless)'; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
ruby -e 'exit RUBY_VERSION >= "3.1"' 2>/dev/null || { echo 'missing: Ruby 3.1 or later (ruby)'; exit 77; }
PATH=$PWD/target/languages/node/bin:$PATH
scripts/python make

mkdir -p "$node/conformance"
cp clients/node/test/conformance.mjs "$node/conformance/"
java=$(clients/java/build)
classes=$(mktemp -d)
trap 'rm -r "$classes"' EXIT
javac --release 11 -cp "$java" -d "$classes" clients/java/src/test/java/dlock/ConformanceAdapter.java

pids=()
options=(${DLOCK_THROUGH:+--through "$DLOCK_THROUGH"})
play() { "$python" tests/conformance/run.py "${options[@]}" --title "$1" -- "${@:2}" & pids+=($!); }
play 'Python, threads' "$python" clients/python/tests/conformance_adapter.py sync
play 'Python, asyncio' "$python" clients/python/tests/conformance_adapter.py asyncio
play 'Node.js, ioredis' node "$node/conformance/conformance.mjs" ioredis
play 'Node.js, node-redis' node "$node/conformance/conformance.mjs" node-redis
play 'Ruby' ruby clients/ruby/test/conformance.rb
play 'Java' java -cp "$java:$classes" dlock.ConformanceAdapter
if [[ -z ${DLOCK_THROUGH:-} ]]; then
    options=(--by sentinel --only grant,outage_killed)
    play 'Ruby, sentinel' ruby clients/ruby/test/conformance.rb
    options=()
fi
if go=$(scripts/go); then
    export GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-mod=readonly GOWORK=off GOPATH=$PWD/target/go GOCACHE=$PWD/target/go/cache
    (cd clients/go && "$go" build -o "$classes/go-adapter" ./internal/conformance)
    play 'Go' "$classes/go-adapter"
    if [[ -z ${DLOCK_THROUGH:-} ]]; then
        for by in sentinel cluster; do
            options=(--by "$by" --only cancel_at_every_point,outage_down,outage_hang,outage_killed,renewal)
            play "Go, $by" "$classes/go-adapter"
        done
    fi
else
    echo "skipped: the adapter of Go: $go"
    go=
fi

# Some scenarios through an agent: as many as end before the slowest adapter above. For all, make conformance
# THROUGH=quorum.
dlock=${DLOCK_COMMAND:-$PWD/target/debug/dlock} # which the tests of crates/cli build
if [[ -z ${DLOCK_THROUGH:-} && -x $dlock ]]; then
    export DLOCK_PROGRAM=$dlock
    options=(--through quorum --only grant,lost_reply,outage_limit,read_write,wait_0)
    play 'Python, asyncio, over a quorum' "$python" clients/python/tests/conformance_adapter.py asyncio
    play 'Node.js, ioredis, over a quorum' node "$node/conformance/conformance.mjs" ioredis
    play 'Java over a quorum' java -cp "$java:$classes" dlock.ConformanceAdapter
    if [[ -n $go ]]; then
        options=(--through one)
        play 'Go through dlock agent' "$classes/go-adapter"
    fi
elif [[ -z ${DLOCK_THROUGH:-} ]]; then
    echo "skipped: clients through dlock agent: no $dlock"
fi
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
for scenario in tests/conformance/scenarios/*.txt; do
    grep -qF "($(basename "$(dirname "$scenario")")/$(basename "$scenario"))" tests/conformance/README.md ||
        { echo "tests/conformance/README.md has no row for $scenario"; failed=1; }
done
exit $failed
