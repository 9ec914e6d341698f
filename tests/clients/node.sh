#!/usr/bin/env bash
# Tests the package for ioredis and node-redis as a user gets it: installed from the file that `npm pack` makes, not
# from the checkout. The server is at DLOCK_TEST_HOST and DLOCK_TEST_PORT. Exits with 77 if something that it needs is
# missing.
set -euo pipefail
export DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"
home=$(scripts/node) || { echo "$home"; exit 77; }
PATH=$PWD/target/languages/node/bin:$PATH
# The tests of crates/cli build this program.
export DLOCK_COMMAND=${DLOCK_COMMAND:-$PWD/target/debug/dlock}

# The tests run beside the installed package, so that they import it and not the sources.
rm -rf "$home/test" "$home/examples" "$home/checkout" "$home/histories" "$home/tables"
mkdir "$home/checkout"
cp -r clients/node/{src,tsconfig.json,*.d.ts} "$home/checkout/"
cp -r clients/node/{test,examples} "$home/"
cp -r clients/node/README.md docs/permissions.md tests/clients/{histories,tables} "$home/"
cd "$home"
tsc=node_modules/.bin/tsc
# Checks the types of the sources, then of programs that use the package, as ES modules and CommonJS, and the README's.
"$tsc" --project checkout/tsconfig.json --typeRoots node_modules/@types
rm -rf readme
node test/readme.mjs README.md readme
for resolution in node16 nodenext; do
    "$tsc" --strict --noEmit --exactOptionalPropertyTypes --target es2022 --lib es2023,esnext.disposable \
        --types node --module "$resolution" --moduleResolution "$resolution" test/types/* readme/*
done
# By default, Node.js runs one file fewer at once than there are processors. These tests mostly wait, so five files run.
exec node --test --test-reporter=spec --test-force-exit --test-timeout=900000 --test-concurrency=5 test/*.test.js
