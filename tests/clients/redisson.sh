#!/usr/bin/env bash
# Checks what docs/migration.md says about programs with Redisson's locks beside programs with ours, on one server.
# `make test` leaves this out, because Maven fetches Redisson. Exit 77: there is no JDK 17 or later, no JUnit 5 or no
# Maven, or Maven cannot fetch.
#
# DLOCK_REDISSON names another version of Redisson than that of redisson/pom.xml, for example 3.50.0.
set -euo pipefail
cd "$(dirname "$0")/../.."

jdk=17
# shellcheck source=tests/clients/junit.bash
source tests/clients/junit.bash

version=${DLOCK_REDISSON:-$(sed -n '/redisson<\/artifactId>/{n;s,.*<version>\(.*\)</version>.*,\1,p}' tests/clients/redisson/pom.xml | tail -1)}
sed "/<groupId>org.redisson/,/<version>/s,<version>.*<,<version>$version<," tests/clients/redisson/pom.xml >"$work/pom.xml"
fetch "$work/pom.xml" "$work/jars" "Redisson $version"

mkdir "$work/tests"
javac --release 17 -nowarn -cp "$library:$work/jars/*:$junit" -d "$work/tests" \
    clients/java/src/test/java/dlock/TestServer.java tests/clients/redisson/RedissonTest.java
echo "Redisson $version"
launch "$library:$work/jars/*:$work/tests" --scan-classpath "$work/tests" --fail-if-no-tests
