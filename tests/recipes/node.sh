#!/usr/bin/env bash
# Runs the recipes in Node.js, and compares what they print: as node.sh those for ioredis (docs/recipes/node), and as
# node-redis.sh, a link to this file, those for node-redis (docs/recipes/node-redis). Each recipe is copied to a
# directory under target/, where npm installs the packages that it imports.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

PATH=$root/target/languages/node/bin:$PATH
command -v npm >/dev/null && node -e 'process.exitCode = Number(parseInt(process.versions.node) < 20)' ||
    missing 'Node.js 20 or later, with npm'

there=$root/target/recipes/node
mkdir -p "$there/$language"
# The two runners may run at the same time: only one of them installs the packages.
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
