#!/usr/bin/env bash
# Plays a new user of the packages for Python, Node.js and Rust: installs each from its built files (wheel, tarball,
# crates) in an empty directory outside the checkout, and runs the first program of the README that is in the file. Only
# the server's address is changed. The server is at DLOCK_TEST_HOST and DLOCK_TEST_PORT.
#
#   tests/clients/new_user.sh              plays the users `python`, `node` and `rust`
#   tests/clients/new_user.sh rust dlock   plays the users that are named. `dlock` installs the command from its crate,
#                                          `sdist` Python's source distribution, `ruby` the gem, `java` the jar, `go`
#                                          the Go module, and `go-modules` those for cron, gocron, goredis, redigo
#                                          and rueidis
#
# DLOCK_PACKAGES is a directory that scripts/packages has filled. Without it, this script builds the files of the other
# users, but not those that `sdist`, `java`, `ruby`, `go` and `go-modules` need.
#
# Each user has two minutes of processor time from the files to the lock. That covers the virtual environment or the
# new project, the dependencies (downloads too, unless pip, npm or cargo has kept them from before), compiling
# everything without optimization, and the program. It does not cover building the files. The limit by the clock is for
# users who wait without work, for a slow download or for something that hangs: ten minutes and ten times the processor
# time, since a busy machine may give a compiler a tenth of what it asks for.
#
# `dlock` runs only if it is named: its crate takes longer to compile than all of the rest, and `make dist-check` tries
# the command as users install it.
set -euo pipefail

limit=120   # seconds of processor time
waits=600   # seconds by the clock, in addition to `slowness` times the processor time
slowness=10
TIMEFORMAT='%R %U %S'
: "${DLOCK_TEST_HOST:?}" "${DLOCK_TEST_PORT:?}"
cli=$(SERVER=${DLOCK_SERVER:-} scripts/server cli)
PATH=$PWD/target/languages/node/bin:$PATH
checkout=$PWD
packages=${DLOCK_PACKAGES:+$(realpath "$DLOCK_PACKAGES")}
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

main() {
    package
    (($# > 0)) || set -- python node rust
    local user
    for user; do play "$user"; done
}

# Puts the files into $home/files, and has cargo take the crates from there instead of from the registry.
package() {
    local crate
    mkdir "$home/files" "$home/.cargo"
    if [[ $packages ]]; then
        find "$packages" \( -name '*.whl' -o -path '*/node/*.tgz' -o -name '*.crate' \) -exec cp -t "$home/files" {} +
    else
        build
    fi
    echo '[patch.crates-io]' >"$home/.cargo/config.toml"
    for crate in core memory quorum client agent cli; do
        # The users that are named may need no crate.
        compgen -G "$home/files/dlock-$crate-*.crate" >/dev/null || continue
        mkdir "$home/files/dlock-$crate"
        tar -xzf "$home/files/dlock-$crate"-*.crate -C "$home/files/dlock-$crate" --strip-components 1
        [[ $crate == cli ]] || echo "dlock-$crate = { path = '$home/files/dlock-$crate' }" >>"$home/.cargo/config.toml"
    done
    export CARGO_TARGET_DIR=$home/built
}

build() {
    local node crate version built=${CARGO_TARGET_DIR:-$PWD/target}
    scripts/python >/dev/null || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
    scripts/python make
    node=$(scripts/node) || { echo "$node"; exit 77; }
    cp target/python/wheel/*.whl "$node"/*.tgz "$home/files"
    # Packs the crates together, since they need each other and no registry has them. The users build them.
    cargo package --quiet --locked --allow-dirty --no-verify \
        -p dlock-core -p dlock-memory -p dlock-quorum -p dlock-client -p dlock-agent -p dlock-cli
    for crate in core memory quorum client agent cli; do
        # Crates of other versions may be in the same directory.
        version=$(cargo pkgid --package "dlock-$crate")
        cp "$built/package/dlock-$crate-${version##*[#@]}.crate" "$home/files"
    done
}

python() {
    python3 -m venv venv
    venv/bin/python -m pip --quiet --disable-pip-version-check install "$home"/files/redis_dlock-*.whl
    venv/bin/python -c 'from importlib.metadata import metadata; print(metadata("redis-dlock").get_payload())' >README.md
    program README.md python 'Redis()' "Redis(host='$DLOCK_TEST_HOST', port=$DLOCK_TEST_PORT)" >first.py
    venv/bin/python first.py
}

sdist() {
    command python3 -m venv venv
    venv/bin/python -m pip --quiet --disable-pip-version-check install "$packages"/python/redis_dlock-*.tar.gz
    venv/bin/python -c 'from importlib.metadata import metadata; print(metadata("redis-dlock").get_payload())' >README.md
    program README.md python 'Redis()' "Redis(host='$DLOCK_TEST_HOST', port=$DLOCK_TEST_PORT)" >first.py
    venv/bin/python first.py
}

java() {
    local jar
    jar=$(find "$packages/java" -name 'dlock-*.jar' ! -name '*-sources.jar' ! -name '*-javadoc.jar')
    program "$checkout/clients/java/README.md" java \
        'try (DLockClient client = DLockClient.connect("redis://127.0.0.1:6379")' \
        "try (DLockClient client = DLockClient.connect(\"redis://$DLOCK_TEST_HOST:$DLOCK_TEST_PORT\")" >Hello.java
    command java -cp "$jar" Hello.java | sed 's/^locked, token /the fencing token is /'
}

ruby() {
    local gems=$PWD/gems
    gem install --silent --local --no-document --ignore-dependencies --install-dir "$gems" "$packages"/ruby/redis-dlock-*.gem
    program "$gems"/gems/redis-dlock-*/README.md ruby 'host: "127.0.0.1", port: 6379' \
        "host: \"$DLOCK_TEST_HOST\", port: $DLOCK_TEST_PORT" >first.rb
    GEM_PATH=$gems:$(gem environment path) command ruby first.rb
}

go() {
    go_with ''
    program "$("$go" list -m -f '{{.Dir}}' "$path")/README.md" go '127.0.0.1:6379' "$DLOCK_TEST_HOST:$DLOCK_TEST_PORT" >main.go
    "$go" run .
}

go-modules() {
    go_with '' /cron /gocron /goredis /redigo /rueidis
    sed "s/127\.0\.0\.1:6379/$DLOCK_TEST_HOST:$DLOCK_TEST_PORT/" "$checkout/tests/clients/go_modules/main.go" >main.go
    "$go" mod tidy
    "$go" run .
}

# go_with SUFFIX...: makes a Go project that needs these modules of clients/go ('': the client). The files are a module
# proxy, which is asked before the one in use. No checksum database has them yet. Sets `go` to the command and `path` to
# the path of the client's module.
go_with() {
    local version each modules=()
    go=$("$checkout/scripts/go")
    path=$(find "$packages/go" -path '*/clients/go/@v/*.mod' -exec sed -n '1s/^module //p' {} +)
    version=$(cat "$packages/go/$path/@v/list")
    GOPROXY=file://$packages/go,$("$go" env GOPROXY)
    export GOPROXY GONOSUMDB=$path GOMODCACHE=$home/modules GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off
    "$go" mod init example.com/first
    for each; do modules+=("$path$each@$version"); done
    "$go" get "${modules[@]}"
}

node() {
    # Without this file, npm looks for a project in the directories above.
    echo '{ "private": true }' >package.json
    npm install --no-audit --no-fund --loglevel=error "$home"/files/redis-dlock-*.tgz ioredis
    program node_modules/redis-dlock/README.md js \
        'new Redis()' "new Redis({ host: '$DLOCK_TEST_HOST', port: $DLOCK_TEST_PORT })" >first.mjs
    command node first.mjs
}

rust() {
    # No client needs this crate, only programs that have the rules of locks built in.
    cargo check --quiet --manifest-path "$home/files/dlock-core/Cargo.toml"
    cargo new --quiet --vcs none first
    cd first
    # The versions of the dependencies that were tested.
    cp "$home/files/dlock-client/Cargo.lock" .
    # `cargo add` finds nothing that is not in the registry.
    echo 'dlock-client = "*"' >>Cargo.toml
    cargo add --quiet tokio --features macros,rt
    program "$home/files/dlock-client/README.md" rust \
        'redis://127.0.0.1' "redis://$DLOCK_TEST_HOST:$DLOCK_TEST_PORT" >src/main.rs
    cargo run --quiet
    # The client and the crates that it needs without TLS, 65 now. A dependency that brings many others fails here.
    local crates
    crates=$(cargo tree --package dlock-client --edges normal --prefix none --no-dedupe | sort -u | wc -l)
    ((crates < 70)) || { echo "dlock-client needs $crates crates"; return 1; }
}

dlock() {
    local line
    cargo install --quiet --debug --path "$home/files/dlock-cli" --root .
    line=$(grep -m1 '^dlock run backup ' "$home/files/dlock-cli/README.md")
    cat >backup <<END
#!/bin/sh
echo "the fencing token is \$DLOCK_TOKEN"
$cli -h $DLOCK_TEST_HOST -p $DLOCK_TEST_PORT DLOCK.INFO "\$DLOCK_NAME" | grep -qx "\$DLOCK_TOKEN"
END
    chmod +x backup
    PATH=$PWD/bin:$PATH DLOCK_URL=redis://$DLOCK_TEST_HOST:$DLOCK_TEST_PORT \
        bash -c "${line/'/usr/local/bin/backup'/./backup}"
}

# program README LANGUAGE DEFAULT ADDRESS: prints the first program of a README in which DEFAULT stands, with ADDRESS in
# place of DEFAULT.
program() {
    local text
    text=$(awk -v begin="\`\`\`$2" -v default="$3" '
        /^```$/ && inside { if (index(block, default)) { printf "%s", block; exit }; inside = 0 }
        inside { block = block $0 "\n" }
        $0 == begin { inside = 1; block = "" }' "$1")
    [[ -n $text ]] || { echo "no program of $1 has $3" >&2; return 1; }
    echo "${text/"$3"/"$4"}"
}

# Lets a user work. Fails unless the program has printed a token that the server gave out meanwhile, within the time.
play() {
    local before after token ended
    mkdir "$home/$1"
    before=$(probe)
    set +e
    { time work "$1"; } 2>"$home/times"
    ended=$?
    set -e
    ((ended == 0)) || fails "$1 failed"
    after=$(probe)
    token=$(sed -n 's/^the fencing token is //p' "$home/output")
    if [[ ! "$before $token $after" =~ ^[0-9]+\ [0-9]+\ [0-9]+$ ]] || ((token <= before || token >= after)); then
        fails "$1: the server has granted no lock with the token '$token'"
    fi
    awk -v user="$1" -v limit=$limit -v waits=$waits -v slowness=$slowness '
        BEGIN { why = "an unknown time" }
        {
            work = $2 + $3
            longest = waits + slowness * work
            printf "%s: a lock after %.1f s by the clock, %.1f s of the processors\n", user, $1, work
            if (work <= 0) why = "no time of the processors"
            else if (work > limit) why = sprintf("%.1f s of the processors, not %d s", work, limit)
            else if ($1 > longest) why = sprintf("%.1f s by the clock, not %.1f s", $1, longest)
            else why = ""
        }
        END { if (why != "") { print "new_user: " user " took too long: " why; exit 1 } }' "$home/times"
}

# fails WHY: ends with the reason, and with what the user saw.
fails() {
    echo "new_user: $1"
    cat "$home/output"
    exit 1
}

work() {
    (set -e; cd "$home/$1"; "$1") >"$home/output" 2>&1
}

# Takes and releases a lock that nobody else uses, and prints its token.
probe() {
    local at=("$cli" -h "$DLOCK_TEST_HOST" -p "$DLOCK_TEST_PORT")
    "${at[@]}" DLOCK.ACQUIRE "new-user:$home" probe
    "${at[@]}" DLOCK.RELEASE "new-user:$home" probe >/dev/null
}

main "$@"
