#!/usr/bin/env bash
# Runs programs with Redisson's locks beside programs with ours, on one server: what docs/migration.md says of both. Maven
# fetches Redisson, so `make test` leaves it out. Exit 77: there is no JDK 17, no JUnit 5 or no Maven, or nothing can be
# fetched.
#
# DLOCK_REDISSON names another version of Redisson, for example 3.50.0.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing() { echo "missing: $1"; exit 77; }

junit=/usr/share/java/junit-platform-console-standalone.jar
[[ $(javac -version 2>/dev/null) =~ ^javac\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 17)) || missing 'a JDK, 17 or later'
[[ -e $junit ]] || missing 'JUnit 5 (junit5)'
command -v mvn >/dev/null || missing 'Maven (maven)'

DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
export DLOCK_SERVER DLOCK_MODULE

library=$(clients/java/build)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
version=${DLOCK_REDISSON:-$(sed -n '/redisson<\/artifactId>/{n;s,.*<version>\(.*\)</version>.*,\1,p}' tests/clients/redisson/pom.xml | tail -1)}
sed "/<groupId>org.redisson/,/<version>/s,<version>.*<,<version>$version<," tests/clients/redisson/pom.xml >"$work/pom.xml"
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$work/jars" >"$work/log" 2>&1 ||
    { tail -3 "$work/log"; missing "Redisson $version"; }

mkdir "$work/tests"
javac --release 17 -nowarn -cp "$library:$work/jars/*:$junit" -d "$work/tests" \
    clients/java/src/test/java/dlock/TestServer.java tests/clients/redisson/RedissonTest.java
echo "Redisson $version"
java -Xmx512m -cp "$junit:$library:$work/jars/*:$work/tests" org.junit.platform.console.ConsoleLauncher \
    --scan-classpath "$work/tests" --disable-banner --disable-ansi-colors --details=tree --details-theme=ascii \
    --fail-if-no-tests --config=junit.jupiter.execution.timeout.default=180s
