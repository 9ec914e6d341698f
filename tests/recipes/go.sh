#!/usr/bin/env bash
# The recipes in Go, with the packages that Debian has.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

export GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=${GOCACHE:-$root/target/languages/go} GOFLAGS=-tags=libsqlite3
built=$root/target/recipes/go
mkdir -p "$built"
go list github.com/gomodule/redigo/redis github.com/mattn/go-sqlite3 >/dev/null 2>&1 ||
    missing 'Go with golang-github-gomodule-redigo-dev and golang-github-mattn-go-sqlite3-dev'

build_and_run() {
    local program
    program=$built/$(basename "$1" .go)
    go build -o "$program" "$1" && "$program"
}
each go build_and_run
