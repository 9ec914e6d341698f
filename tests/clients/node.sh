#!/usr/bin/env bash
# Runs the tests of clients/node against ioredis and node-redis, on the server at DLOCK_TEST_HOST and DLOCK_TEST_PORT.
# Exit 77: Node.js, or what npm has to fetch, is not there.
set -euo pipefail
cd "$(dirname "$0")/../../clients/node"

missing() { echo "missing: $1"; exit 77; }

: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"
PATH=$PWD/../../target/languages/node/bin:$PATH
command -v npm >/dev/null && node -e 'process.exitCode = Number(parseInt(process.versions.node) < 20)' || missing 'Node.js 20 or later, with npm'
if [[ ! node_modules/.package-lock.json -nt package.json ]]; then
    npm install --no-audit --no-fund --loglevel=error || missing 'the packages of clients/node (npm install)'
fi
node_modules/.bin/tsc --project tsconfig.json
exec node --test --test-reporter=spec --test-force-exit test/*.test.js
