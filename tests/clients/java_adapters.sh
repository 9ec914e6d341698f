#!/usr/bin/env bash
# Tests clients/java/adapters with the other Redis clients and frameworks themselves, which Maven fetches. It is not a part
# of `make test`: it needs a repository of Maven. Exit 77: there is no JDK 17, no JUnit 5 or no Maven, or nothing can be fetched.
#
#   tests/clients/java_adapters.sh                 all of them
#   tests/clients/java_adapters.sh DriversTest     one class
#
# The variables DLOCK_SPRING (Spring Integration: 7.1.2 goes with Spring Boot 4), DLOCK_BOOT, DLOCK_MICROMETER,
# DLOCK_JEDIS and DLOCK_LETTUCE name other versions to test with. The adapters are compiled with those of their poms.
set -euo pipefail
cd "$(dirname "$0")/../.."

jdk=17
# shellcheck source=tests/clients/junit.bash
source tests/clients/junit.bash
adapters=clients/java/adapters
export DLOCK_PAGE=$PWD/$adapters/README.md DLOCK_PAGE_TEST=$PWD/$adapters/src/test/java/dlock/PageTest.java

# fetch_for ADAPTER SUFFIX: fetches the dependencies of an adapter into jarsSUFFIX/ADAPTER, by a copy of its pom without
# dlock, which no repository has. With a suffix, in the versions that the environment names.
fetch_for() {
    mkdir -p "$work/$1" "$work/jars$2/$1"
    python3 - "$adapters/$1/pom.xml" "$work/$1/pom.xml" "$2" <<'END'
import os
import re
import sys

pom = open(sys.argv[1]).read()
pom = re.sub(r"<parent>.*?</parent>", "<groupId>fetched</groupId><version>1</version>", pom, flags=re.S)
pom = re.sub(r"<dependency>\s*<groupId>dlock</groupId>.*?</dependency>", "", pom, flags=re.S)
names = {
    "DLOCK_BOOT": "spring-boot-(?:autoconfigure|dependencies)",
    "DLOCK_SPRING": "spring-integration-core",
    "DLOCK_MICROMETER": "micrometer-core",
    "DLOCK_JEDIS": "jedis",
    "DLOCK_LETTUCE": "lettuce-core",
}
for variable, artifact in names.items():
    if version := sys.argv[3] and os.environ.get(variable):
        pom = re.sub(rf"({artifact}</artifactId>\s*<version>)[^<]*", rf"\g<1>{version}", pom)
open(sys.argv[2], "w").write(pom)
END
    fetch "$work/$1/pom.xml" "$work/jars$2/$1" "the dependencies of $1"
}

# Fetches the libraries that an adapter is compiled with, and puts those that the tests run with on their class path.
use() {
    fetch_for "$1" ''
    if [[ -n ${DLOCK_BOOT:-}${DLOCK_SPRING:-}${DLOCK_MICROMETER:-}${DLOCK_JEDIS:-}${DLOCK_LETTUCE:-} ]]; then
        fetch_for "$1" .other
        everything+=":$work/jars.other/$1/*"
    else
        everything+=":$work/jars/$1/*"
    fi
}

# Each adapter is compiled with its own dependencies only.
classes=$work/classes
everything=$library:$classes
use src/test # whose versions come first
for module in jedis lettuce micrometer shedlock spring spring-boot; do
    use "$module"
    mapfile -t sources < <(find "$adapters/$module/src" -name '*.java')
    mkdir -p "$classes"
    javac --release 17 -Xlint:all,-classfile -Xdoclint:all,-missing -Werror -cp "$library:$classes:$work/jars/$module/*" \
        -d "$classes" "${sources[@]}"
    [[ ! -d $adapters/$module/src/main/resources ]] || cp -r "$adapters/$module/src/main/resources/." "$classes"
done
mkdir "$work/tests"
jedis=7
javap -cp "$everything" redis.clients.jedis.RedisClient >/dev/null 2>&1 || jedis=5
javac --release 17 -nowarn -parameters -cp "$everything:$junit" -d "$work/tests" \
    clients/java/src/test/java/dlock/{TestServer,TestCluster,Proxy}.java "$adapters"/src/test/{java,"jedis/$jedis"}/dlock/*.java

chosen=(--scan-classpath "$work/tests")
(($# == 0)) || chosen=("${@/#/--select-class=dlock.}")
java=(java -Dspring.main.banner-mode=off -Dlogging.level.root=warn)
launch "$everything:$work/tests" "${chosen[@]}" --fail-if-no-tests
