#!/usr/bin/env bash
# The recipes in Java, with the package in clients/java.
set -euo pipefail
. "$(dirname "$0")/expect.bash"

sqlite=/usr/share/java/sqlite-jdbc.jar
[[ $(javac -version 2>/dev/null) =~ ^javac\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 11)) ||
    missing 'a JDK, 11 or later (default-jdk-headless)'
[[ -e $sqlite ]] || missing 'SQLite for Java (libxerial-sqlite-jdbc-java)'

library=$("$root/clients/java/build")
each java java -cp "$library:$sqlite"

# The program that the README of the package shows, as it says to run it.
program=$(mktemp -d)
trap 'rm -r "$program"' EXIT
awk '/^```/ { inside = 0 } inside; /^```java$/ { inside = 1 }' "$root/clients/java/README.md" |
    sed -n '/^class Hello /,/^}$/p' | sed "1i import dlock.*;
        s,127.0.0.1:6379,$DLOCK_TEST_HOST:$DLOCK_TEST_PORT," >"$program/Hello.java"
printed=$(java -cp "$library" "$program/Hello.java")
[[ $printed =~ ^'locked, token '[0-9]+$ ]] || { echo "Hello.java of the README printed: $printed"; exit 1; }
