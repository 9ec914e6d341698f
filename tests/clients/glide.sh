#!/usr/bin/env bash
# Runs the program of docs/waiting.md and glide/Locked.java with Valkey GLIDE for Python and Java, which pip and Maven
# fetch. `make test` leaves it out. Each program waits for a second, longer than GLIDE's usual limit. Exit 77: something
# cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing() { echo "missing: $1"; exit 77; }

server=${DLOCK_SERVER:-$(scripts/server)}
module=${DLOCK_MODULE:-$PWD/target/release/libdlock.so}
cli=$(SERVER=$server scripts/server cli)
home=$PWD/target/glide
mkdir -p "$home"
work=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$server" --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --loadmodule "$module" >"$work/log" &
started=$!
trap '{ kill $started; wait $started; } || true; rm -r "$work"' EXIT
run() { "$cli" -p "$port" "$@"; }
until run PING >/dev/null 2>&1; do
    kill -0 "$started" 2>/dev/null || { cat "$work/log"; exit 1; }
    sleep 0.05
done

# play LANGUAGE FILE COMMAND… <PROGRAM: runs the program while another owner has the lock, and frees it once the
# program waits.
play() {
    sed "s/6379/$port/" >"$work/$2"
    run DLOCK.ACQUIRE job:1 another PX 60000 >/dev/null
    "${@:3}" >"$work/said" 2>"$work/complained" &
    local program=$! waits=''
    for _ in {1..600}; do
        waits=$(run DLOCK.INFO job:1 | awk 'last == "waiters" { print } { last = $0 }')
        [[ $waits == 1 ]] && break
        sleep 0.1
    done
    [[ $waits == 1 ]] || { cat "$work/complained"; echo "glide: $1 does not wait"; return 1; }
    sleep 1
    run DLOCK.RELEASE job:1 another >/dev/null
    wait "$program"
    grep -qE '^the fencing token is [0-9]+$' "$work/said" || { cat "$work/said"; echo "glide: $1 got no lock"; return 1; }
    [[ $(run EXISTS job:1) == 0 ]] || { echo "glide: $1 has not released the lock"; return 1; }
    echo "glide: $1: $(cat "$work/said")"
}

if [[ ! -e $home/venv/fetched ]]; then
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check 'valkey-glide>=2' || missing 'valkey-glide (pip)'
    touch "$home/venv/fetched"
fi
awk '$0 == "```python" { inside = 1; next } /^```$/ { inside = 0 } inside' docs/waiting.md |
    play python locked.py "$home/venv/bin/python" "$work/locked.py"

command -v mvn >/dev/null || missing 'Maven (maven)'
if [[ ! -e $home/jars/fetched ]]; then
    cat >"$home/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion><groupId>fetched</groupId><artifactId>glide</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.valkey</groupId><artifactId>valkey-glide</artifactId><version>2.0.1</version>
      <classifier>linux-x86_64</classifier>
    </dependency>
  </dependencies>
</project>
END
    mvn -q -B -f "$home/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$home/jars" >&2 || missing 'valkey-glide (Maven)'
    touch "$home/jars/fetched"
fi
play java Locked.java java -cp "$home/jars/*" "$work/Locked.java" <tests/clients/glide/Locked.java
