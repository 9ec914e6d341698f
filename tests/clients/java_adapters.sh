#!/usr/bin/env bash
# Tests clients/java/adapters with the other Redis clients and frameworks themselves, which Maven fetches. It is not a part
# of `make test`: it needs a repository of Maven. Exit 77: there is no JDK 17, no JUnit 5 or no Maven, or nothing can be fetched.
#
#   tests/clients/java_adapters.sh                 all of them
#   tests/clients/java_adapters.sh DriversTest     one class
#
# DLOCK_SPRING names another version of Spring Integration than the one of Spring Boot 3, as 7.1.2 of Boot 4, and DLOCK_BOOT,
# DLOCK_MICROMETER, DLOCK_JEDIS and DLOCK_LETTUCE other versions of these. The adapters are compiled for those of their poms.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing() { echo "missing: $1"; exit 77; }

junit=/usr/share/java/junit-platform-console-standalone.jar
[[ $(javac -version 2>/dev/null) =~ ^javac\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 17)) || missing 'a JDK, 17 or later'
[[ -e $junit ]] || missing 'JUnit 5 (junit5)'
command -v mvn >/dev/null || missing 'Maven (maven)'

DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
adapters=clients/java/adapters
export DLOCK_SERVER DLOCK_MODULE DLOCK_SHARED=$PWD/tests/clients
export DLOCK_PAGE=$PWD/$adapters/README.md DLOCK_PAGE_TEST=$PWD/$adapters/src/test/java/dlock/PageTest.java

library=$(clients/java/build)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# Fetches what an adapter is for: a pom without dlock, which is not in a repository. With a second word, in the version of
# the environment.
fetch() {
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
    mvn -q -B -f "$work/$1/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$work/jars$2/$1" >"$work/log" 2>&1 ||
        { tail -3 "$work/log"; missing "the dependencies of $1"; }
}

# Fetches the libraries that an adapter is compiled with, and puts those that the tests run with on their class path.
use() {
    fetch "$1" ''
    if [[ -n ${DLOCK_BOOT:-}${DLOCK_SPRING:-}${DLOCK_MICROMETER:-}${DLOCK_JEDIS:-}${DLOCK_LETTUCE:-} ]]; then
        fetch "$1" .other
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
javac --release 17 -nowarn -parameters -cp "$everything:$junit" -d "$work/tests" \
    clients/java/src/test/java/dlock/{TestServer,TestCluster}.java "$adapters"/src/test/java/dlock/*.java

chosen=(--scan-classpath "$work/tests")
(($# == 0)) || chosen=("${@/#/--select-class=dlock.}")
java -Xmx512m -Dspring.main.banner-mode=off -Dlogging.level.root=warn -cp "$junit:$everything:$work/tests" org.junit.platform.console.ConsoleLauncher "${chosen[@]}" \
    --disable-banner --disable-ansi-colors --details=tree --details-theme=ascii --fail-if-no-tests \
    --config=junit.jupiter.execution.timeout.default=180s
