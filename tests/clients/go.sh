#!/usr/bin/env bash
# Vets clients/go and runs its tests with the race detector. They start their own servers: DLOCK_SERVER with the module
# DLOCK_MODULE. Exit 77: there is no Go of 1.23 or later, and scripts/go cannot fetch it.
#
#   tests/clients/go.sh                    all of them
#   tests/clients/go.sh -run Deadline      what `go test` takes
set -euo pipefail
cd "$(dirname "$0")/../.."

go=$(scripts/go) || { echo "$go"; exit 77; }
DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
export DLOCK_SERVER DLOCK_MODULE
# Nothing is downloaded, and nothing is written outside of target/.
export GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-mod=readonly GOWORK=off GOPATH=$PWD/target/go GOCACHE=$PWD/target/go/cache

cd clients/go
unformatted=$("$(dirname "$go")/gofmt" -l .)
[[ -z $unformatted ]] || { echo "not formatted by gofmt: $unformatted"; exit 1; }
"$go" vet ./...
race=(-race)
cc --version >/dev/null 2>&1 || { race=(); echo 'skipped: the race detector: no C compiler'; }
"$go" test "${race[@]}" -count=1 -timeout=300s "$@" ./...
