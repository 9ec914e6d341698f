#!/usr/bin/env bash
# Tests the gem of clients/ruby with Debian's redis-rb, and with its Active Job and Sidekiq where they are installed. The
# server is at DLOCK_TEST_HOST and DLOCK_TEST_PORT. The script starts one without the module, at the socket
# DLOCK_TEST_PLAIN.
set -euo pipefail
: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"

ruby -e 'exit RUBY_VERSION >= "3.1"' 2>/dev/null || { echo 'missing: Ruby 3.1 or later'; exit 77; }
ruby -rredis -e '' 2>/dev/null || { echo 'missing: redis-rb (ruby-redis)'; exit 77; }

server=${DLOCK_SERVER:-$(scripts/server)}
home=$(mktemp -d)
sessions=
# A server that ends deletes its socket: the folder goes once all have ended.
trap '{ kill "$plain" $sessions; wait "$plain" $sessions; } 2>/dev/null || true; rm -r "$home"' EXIT
"$server" --port 0 --unixsocket "$home/plain" --save '' --dir "$home" >"$home/log" &
plain=$!
export DLOCK_TEST_PLAIN=$home/plain

# The programs of the README: block N, as a file.
program() {
    awk -v wanted="$1" '/^```ruby$/ { block++; inside = 1; next } /^```$/ { inside = 0 } inside && block == wanted' clients/ruby/README.md |
        sed "s|127\.0\.0\.1\", port: 6379|$DLOCK_TEST_HOST\", port: $DLOCK_TEST_PORT|
             s|127\.0\.0\.1:6379|$DLOCK_TEST_HOST:$DLOCK_TEST_PORT|"
}

ruby -w clients/ruby/test/histories.rb
ruby -w clients/ruby/test/urls.rb
ruby -w clients/ruby/test/replies.rb
program 1 >"$home/readme.rb"
ruby -w -Iclients/ruby/lib "$home/readme.rb" | tee "$home/said"
grep -qE '^the fencing token is [0-9]{16}$' "$home/said" && grep -qx 'nobody else has it, for 30 s' "$home/said"
until [[ -S $home/plain ]]; do
    kill -0 "$plain" 2>/dev/null || { cat "$home/log"; exit 1; }
    sleep 0.05
done
program 2 >"$home/sessions.rb"
ruby -w -Iclients/ruby/lib "$home/sessions.rb" | tee "$home/said"
grep -qE '^job 1 has the token [0-9]{16}$' "$home/said" && grep -qE '^both have the token [0-9]{16}$' "$home/said"

# Most of the tests of sessions wait. One has the server cap all holds.
capped=test_a_cap_of_the_server_ends_a_hold
ruby -w clients/ruby/test/sessions.rb --exclude "$capped" >"$home/sessions" 2>&1 &
sessions=$!
ruby -w clients/ruby/test/locks.rb
ruby -w clients/ruby/test/interrupts.rb
wait "$sessions" || { cat "$home/sessions"; exit 1; }
cat "$home/sessions"
ruby -w clients/ruby/test/sessions.rb --name "$capped"

# The classes of jobs in the README. jobs.rb performs them.
if ruby -rsidekiq -ractive_job -e '' 2>/dev/null; then
    { program 3; program 4; } >"$home/jobs.rb"
    DLOCK_TEST_JOBS=$home/jobs.rb ruby -Iclients/ruby/lib clients/ruby/test/jobs.rb
else
    echo 'skipped: jobs: no Sidekiq and Active Job here (ruby-sidekiq, ruby-activejob)'
fi
