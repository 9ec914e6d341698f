# Sourced by the tests of Java: finds JDK, JUnit and the server, and builds the package (`library`). `work` is a folder
# for their files, removed at their end. `jdk`, which they set before, is the oldest release that they take.

missing() { echo "missing: $1"; exit 77; }

junit=/usr/share/java/junit-platform-console-standalone.jar
[[ $(javac -version 2>/dev/null) =~ ^javac\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= jdk)) ||
    missing "a JDK, $jdk or later (default-jdk-headless)"
[[ -e $junit ]] || missing 'JUnit 5 (junit5)'

DLOCK_SERVER=${DLOCK_SERVER:-$(scripts/server)}
DLOCK_MODULE=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
export DLOCK_SERVER DLOCK_MODULE DLOCK_SHARED=$PWD/tests/clients

library=$(clients/java/build)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# fetch POM FOLDER NAME: has Maven fetch what a pom names.
fetch() {
    command -v mvn >/dev/null || missing 'Maven (maven)'
    mvn -q -B -f "$1" dependency:copy-dependencies "-DoutputDirectory=$2" >"$work/log" 2>&1 ||
        { tail -3 "$work/log"; missing "$3"; }
}

# launch CLASSPATH OPTION…: runs tests on `java`, with options of JUnit.
launch() {
    "${java[@]}" -Xmx512m -cp "$junit:$1" org.junit.platform.console.ConsoleLauncher "${@:2}" --disable-banner \
        --disable-ansi-colors --details=tree --details-theme=ascii --config=junit.jupiter.execution.timeout.default=180s
}
java=(java)
