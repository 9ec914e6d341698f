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
