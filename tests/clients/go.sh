#!/usr/bin/env bash
# Vets clients/go and the adapters for go-redis, redigo, rueidis, gocron and cron in it, and runs their tests with the race
# detector. The tests start their own servers: DLOCK_SERVER with the module DLOCK_MODULE. Exit 77: there is no Go of
# 1.23 or later, and scripts/go cannot fetch it.
#
#   tests/clients/go.sh                    runs all tests
#   tests/clients/go.sh -run Deadline      passes these arguments on to `go test`
set -euo pipefail
cd "$(dirname "$0")/../.."

go=$(scripts/go) || { echo "$go"; exit 77; }
modules=$(scripts/go-modules) || { echo "skipped: staticcheck, and the adapters: $modules"; modules=; }
DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
DLOCK_COMMAND=${DLOCK_COMMAND:-$PWD/target/debug/dlock} # which the tests of crates/cli build
export DLOCK_SERVER DLOCK_MODULE DLOCK_COMMAND
# Nothing is downloaded, and nothing is written outside of target/.
export GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-mod=readonly GOWORK=off GOPATH=$PWD/target/go GOCACHE=$PWD/target/go/cache
export PATH=${go%/*}:$PATH XDG_CACHE_HOME=$PWD/target/go/cache
race=(-race)
cc --version >/dev/null 2>&1 || { race=(); echo 'skipped: the race detector: no C compiler'; }

cd clients/go
unformatted=$(gofmt -l .)
[[ -z $unformatted ]] || { echo "not formatted by gofmt: $unformatted"; exit 1; }

check() {
    go vet ./...
    if [[ -n $modules ]]; then
        if [[ -x $modules/staticcheck ]]; then
            "$modules/staticcheck" ./...
        else
            echo 'skipped: staticcheck: it is older than Go'
        fi
    fi
    go test "${race[@]}" -count=1 -timeout=900s "$@" ./...
}

# Checks an adapter. A copy of its go.mod names the folders that have the sources of the Redis clients.
adapter() (
    package=$PWD
    cd "$1"
    shift
    file=$package/../../target/go/${PWD##*/}.mod
    mkdir -p "${file%/*}"
    sed "s|=> \.\.|=> $package|" go.mod >"$file"
    while read -r module at; do printf 'replace %s => %s\n' "$module" "$at"; done <"$modules/list" >>"$file"
    GOFLAGS="-mod=mod -modfile=$file" check "$@"
)

check "$@"
[[ -n $modules ]] || exit 0
for each in goredis redigo; do adapter "$each" "$@"; done
if [[ -e $modules/cache ]]; then
    for each in rueidis gocron cron; do (cd "$each" && GOMODCACHE=$modules/cache check "$@"); done
    # lab/porcupine checks stored histories with Porcupine, a checker that others have written.
    (cd ../../lab/porcupine && GOMODCACHE=$modules/cache go vet ./... && GOMODCACHE=$modules/cache go test -count=1 ./...)
else
    echo 'skipped: the adapters for rueidis, gocron and cron: the module proxy is not reached'
fi
