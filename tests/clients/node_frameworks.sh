#!/usr/bin/env bash
# Tests the Node.js package in NestJS, with Valkey GLIDE, and under Bun and Deno. npm fetches all of them, 250 MB, so
# `make test` leaves this out. Exit 77: something cannot be fetched.
#
#   tests/clients/node_frameworks.sh                   all of them
#   tests/clients/node_frameworks.sh nest glide        these test files
set -euo pipefail
cd "$(dirname "$0")/../.."

missing() { echo "missing: $1"; exit 77; }

server=${DLOCK_SERVER:-$(scripts/server)}
module=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
package=$(scripts/node) || { echo "$package"; exit 77; }
home=$PWD/target/node-frameworks
PATH=$PWD/target/languages/node/bin:$home/node_modules/.bin:$PATH
mkdir -p "$home"
cp clients/node/frameworks/* clients/node/README.md "$home/"
cp clients/node/test/readme.mjs "$home/readme.mjs"
cd "$home"
quiet=(--no-audit --no-fund --loglevel=error)
if ! cmp -s package-lock.json installed; then
    npm ci "${quiet[@]}" >&2 || missing 'NestJS, GLIDE, Bun and Deno (npm ci)'
    cp package-lock.json installed
fi
npm install "${quiet[@]}" --no-package-lock --no-save "$package"/redis-dlock-*.tgz >&2 || missing 'what the package needs (npm install)'

# Starts a server on a free port, which runs until this script ends, and exports the port: `serve VARIABLE OPTIONS…`.
started=()
data=$(mktemp -d)
trap '{ kill "${started[@]}"; wait "${started[@]}"; } || true; rm -r "$data"' EXIT
serve() {
    local port
    port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
    "$server" --port "$port" --bind 127.0.0.1 --save '' --dir "$data" "${@:2}" >"$data/$1.log" &
    started+=($!)
    until (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 "${started[-1]}" 2>/dev/null || { cat "$data/$1.log"; exit 1; }
        sleep 0.05
    done
    export "$1=$port"
}
serve DLOCK_TEST_PORT --loadmodule "$module"
serve DLOCK_TEST_BARE_PORT

# The programs of the README, and an application, as ECMAScript modules with the decorators of NestJS.
rm -rf built programs readme
mkdir built
node readme.mjs README.md programs typescript
node readme.mjs README.md readme js
cp ./*.mjs built/
node_modules/.bin/tsc --strict --exactOptionalPropertyTypes --skipLibCheck --target es2022 --module nodenext \
    --experimentalDecorators --emitDecoratorMetadata --types node --outDir built app.mts programs/*
(($# > 0)) || set -- nest glide runtimes
files=("${@/%/.test.mjs}")
node --test --test-reporter=spec --test-force-exit --test-timeout=600000 "${files[@]/#/built/}"
