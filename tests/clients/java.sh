#!/usr/bin/env bash
# Builds clients/java and runs its tests. They start their own servers: DLOCK_SERVER with the module DLOCK_MODULE.
# Exit 77: there is no JDK, or no JUnit 5.
#
#   tests/clients/java.sh                 all of them
#   tests/clients/java.sh LocksTest       one class
#
# DLOCK_JAVA names another `java` that runs the tests, for example one with virtual threads.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing() { echo "missing: $1"; exit 77; }

junit=/usr/share/java/junit-platform-console-standalone.jar
[[ $(javac -version 2>/dev/null) =~ ^javac\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 11)) ||
    missing 'a JDK, 11 or later (default-jdk-headless)'
[[ -e $junit ]] || missing 'JUnit 5 (junit5)'

DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
export DLOCK_SERVER DLOCK_MODULE

library=$(clients/java/build)
classes=$(mktemp -d)
trap 'rm -r "$classes"' EXIT
mapfile -t sources < <(find clients/java/src/test -name '*.java')
javac --release 11 -Xlint:all,-try -Werror -cp "$library:$junit" -d "$classes" "${sources[@]}"

chosen=(--scan-classpath "$classes")
(($# == 0)) || chosen=("${@/#/--select-class=dlock.}")
"${DLOCK_JAVA:-java}" -Xmx512m -jar "$junit" --class-path "$library:$classes" "${chosen[@]}" \
    --disable-banner --disable-ansi-colors --details=tree --details-theme=ascii --fail-if-no-tests \
    --config=junit.jupiter.execution.timeout.default=180s
