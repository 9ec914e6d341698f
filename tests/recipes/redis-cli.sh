#!/usr/bin/env bash
# The recipes for redis-cli.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

command -v redis-cli >/dev/null && command -v sqlite3 >/dev/null || missing 'redis-cli and sqlite3'
each sh bash

# An error is no grant: here every key of the recipes has another type.
cli() { redis-cli -h "$DLOCK_TEST_HOST" -p "$DLOCK_TEST_PORT" "$@" >/dev/null; }
for recipe in "${!printed[@]}"; do
    for key in "recipe:$recipe" "recipe:$recipe:"{a,b} '{recipe}:'{from,to,other}; do cli SET "$key" 'no lock'; done
    said=$(bash "$recipes/$recipe.sh" 2>&1) && ended=0 || ended=$?
    if ((ended == 0)) || [[ $said =~ granted|working|reading|writing|written|has|renewed ]]; then
        printf '%s/%s, where a key has another type, ended with %s:\n%s\n' "$language" "$recipe" "$ended" "$said" >&2
        exit 1
    fi
done
