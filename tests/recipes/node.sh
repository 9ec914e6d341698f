#!/usr/bin/env bash
# The recipes in Node.js, for ioredis (docs/recipes/node) and for node-redis (docs/recipes/node-redis): the same runner
# under both names. They run where npm has put what they import, under target/.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

PATH=$root/target/languages/node/bin:$PATH
command -v npm >/dev/null && node -e 'process.exitCode = Number(parseInt(process.versions.node) < 20)' ||
    missing 'Node.js 20 or later, with npm'

there=$root/target/recipes/node
mkdir -p "$there/$language"
exec {busy}>"$there/busy"
flock "$busy"
if ! cmp -s "$root/docs/recipes/node/package.json" "$there/package.json"; then
    cp "$root/docs/recipes/node/package.json" "$there/"
    npm install --prefix "$there" --no-audit --no-fund --no-package-lock --loglevel=error || {
        rm "$there/package.json"
        missing 'the packages of docs/recipes/node (npm install)'
    }
fi
exec {busy}>&-

cp "$recipes"/*.mjs "$there/$language/"
recipes=$there/$language
each mjs node
