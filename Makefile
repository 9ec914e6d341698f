# dlock. `make` lists what can be done.

PORT   ?= 6379
# The server of the targets that start one, without SERVERS: redis-server or valkey-server on PATH unless named here.
SERVER ?=

export PORT SERVER
export CARGO_TARGET_DIR := $(CURDIR)/target
export DLOCK_MODULE := $(CURDIR)/target/release/libdlock.so
export DLOCK_MODULE_HOOKS := $(CURDIR)/target/debug/libdlock.so
export RUST_TEST_THREADS ?= 8
# The tests of recipes skip these languages if they are missing: `make setup` does not install Go, which takes 440 MB.
export DLOCK_RECIPES_MISSING_OK ?= go

# How the module and the command are built, here and for a release. Larger functions make the file larger, but save a
# tenth of the module's own instructions.
MODULE_BUILD := --package dlock --lib --crate-type cdylib -- -C llvm-args=-inline-threshold=3000 -C llvm-args=-cold-callsite-rel-freq=0
COMMAND_BUILD := --package dlock-cli --features tls
# All builds for tests have the same features: for another set, cargo would build everything again.
TESTED := --locked --workspace --features tls
# The packages of a release, which `make lint` also checks without features.
SHIPPED := dlock dlock-core dlock-memory dlock-quorum dlock-client dlock-agent dlock-cli

FUZZ_TOOL := $(CURDIR)/target/release/dlock-stress

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## this list
	@echo 'dlock: distributed locks as a native feature of Redis and Valkey'
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "  make %-21s %s\n", $$1, $$2 }'
	@echo
	@echo '  PORT=6380       another port for run'
	@echo "  SERVERS='a b'   only these servers for matrix, TESTS='c d' only these files of tests/server/"
	@echo '  SERVER=path     another server for run, demo, test and the benchmarks'
	@echo '  SECONDS= SEED=  the duration and the seed of the random numbers, where a target names them'
	@echo '  BENCH=options   options of bench and bench-instr, such as BENCH="--only acquire --mode none"'

# Only `make setup` itself and the tests install the languages of the recipes: a build does not need them.
setup: ## find what the build and the tests need, install what is missing
	@scripts/setup
	@$(if $(filter setup,$(MAKECMDGOALS)),scripts/setup test)

build: module ## build the module and the command: target/release/libdlock.so, target/release/dlock
	cargo build --locked --release $(COMMAND_BUILD)

module: setup
	cargo rustc --locked --release $(MODULE_BUILD)

run: port module ## start a server with the module, in the foreground on 127.0.0.1:PORT (6379)
	@scripts/run

demo: module ## play a session of locking, on a server of its own
	@scripts/demo

test: module hooks ## run all tests (SERVER=path: on that server)
	@scripts/setup test
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo test $(TESTED)

conformance: build ## play the conformance suite against every package (THROUGH=one, sentinel or quorum: through dlock agent; serve: on dlock serve)
	@scripts/setup test
	DLOCK_COMMAND=$$CARGO_TARGET_DIR/release/dlock DLOCK_PROGRAM=$$CARGO_TARGET_DIR/release/dlock \
	DLOCK_THROUGH=$(THROUGH) tests/clients/conformance.sh
	$(if $(filter serve,$(THROUGH)),DLOCK_PROGRAM=$$CARGO_TARGET_DIR/release/dlock DLOCK_THROUGH=serve cargo test --locked --package dlock-client --package dlock-cli --features dlock-cli/tls --test conformance)

suites: build ## play the lock tests of other projects, write docs/evidence.md (SUITE=name)
	@scripts/setup test
	server=$$(scripts/server) && DLOCK_SERVER="$$server" tests/suites/run --write $(SUITE)

test-node-newest: module ## test the Node.js package with the newest ioredis and node-redis, instead of the pinned ones
	@scripts/setup test
	server=$$(scripts/server) && DLOCK_SERVER="$$server" DLOCK_NODE_NEWEST=1 DLOCK_RECIPES=node \
	cargo test --locked --test recipes the_packages_keep_their_promises -- --nocapture

test-node-frameworks: module ## test the Node.js package in NestJS, with Valkey GLIDE, and under Bun and Deno, which npm fetches
	@scripts/setup test
	tests/clients/node_frameworks.sh

test-glide: module ## run the programs for Valkey GLIDE, in Python (docs/waiting.md) and Java, which pip and Maven fetch
	@scripts/setup test
	tests/clients/glide.sh

test-java-frameworks: module ## test the Java package in Spring Boot and its adapters with their libraries, which Maven fetches
	@scripts/setup test
	tests/clients/java_adapters.sh BootTest DriversTest FrameworksTest MetricsTest PageTest

test-java-sentinel: module ## test the Java package over Jedis and Lettuce in failovers by Sentinel; Maven fetches them
	@scripts/setup test
	tests/clients/java_adapters.sh SentinelTest

test-redisson: module ## run programs with Redisson's locks beside ours, as docs/migration.md says; Maven fetches Redisson
	@scripts/setup test
	tests/clients/redisson.sh

lint: setup ## check format, clippy, rustdoc, where unsafe code is, packages, and texts
	@scripts/setup lint
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	cargo clippy --locked $(addprefix --package ,$(SHIPPED)) -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --exclude dlock --no-deps --all-features --quiet
	scripts/check-unsafe
	scripts/check-packages
	scripts/check-texts
	scripts/timelines check
	scripts/reproduce --check
	scripts/soak-all --check

quorum-sim: setup ## simulate the quorum, 100,000 seeded runs (RUNS=, SEED=)
	DLOCK_QUORUM_RUNS=$(or $(RUNS),100000) DLOCK_QUORUM_SEED=$(or $(SEED),0) cargo test --locked --package dlock-quorum simulation -- --nocapture

client-histories: setup ## write the histories that all packages play, check 100,000 worlds of clients (WORLDS=)
	cargo run --locked --package dlock-testkit --example client_histories
	DLOCK_CLIENT_WORLDS=$(or $(WORLDS),100000) cargo test --locked --package dlock-testkit --test client_histories -- --nocapture

check-model: setup ## visit every state of small instances of the engine, print a table (SCOPE=name)
	scripts/check-model $(if $(SCOPE),'$(SCOPE)')

spec: setup ## check the specifications in lab/spec and traces of the engine with TLC, and that TLC notices each rule that is left out (SPEC=gate or large)
	@scripts/setup spec
	cargo test $(TESTED) --no-run --test seeds
	lab/spec/check.py $(SPEC)

simulate: setup ## simulate whole deployments on the core, each from a seed, in one thread each (SEED=, RUNS=)
	cargo run --locked --package dlock-simulation -- --runs $(or $(RUNS),10000) $(if $(SEED),--seed $(SEED))

planted: setup ## plant bugs in a copy of the sources, fail unless each is noticed (PLANTED='--server', on servers too; or names)
	scripts/planted $(PLANTED)

reproduce: build ## put a bug of docs/record.md back into a copy of the sources, and show which test finds it (BUG=number)
	@scripts/setup test
	scripts/reproduce $(BUG)

quorum-kills: module ## 20 clients of five servers: kills, pauses and clock steps at random, a minute (SECONDS=, DLOCK_SEED=)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" DLOCK_QUORUM_SECONDS=$(or $(SECONDS),60) \
	cargo test --locked --package dlock-client --test quorum twenty_clients -- --nocapture

quorum-restarts: module ## rolling restarts of three and of five servers without persistence (two minutes)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" \
	cargo test --locked --package dlock-client --test quorum rolling -- --include-ignored --nocapture

quorum-serve: ## kills of three and of five servers in memory at random, under contention (six minutes)
	cargo test --locked --package dlock-cli --features tls --test serve kills -- --include-ignored --nocapture

bench-quorum: module ## time a quorum against Redlock on a quiet machine, fail if a target is missed
	server=$$(scripts/server) && DLOCK_SERVER="$$server" \
	cargo test --locked --release --package dlock-client --test quorum figures -- --ignored --nocapture

bench-agent: module ## time dlock agent beside the Rust client on a quiet machine, and a thousand waiters; fail if a target is missed
	server=$$(scripts/server) && DLOCK_SERVER="$$server" \
	cargo test --locked --release --package dlock-cli --test agent figures -- --ignored --nocapture

fmt: ## format the code
	cargo fmt --all

bench-instr: module ## count instructions of every command and its rivals (callgrind), compare with lab/bench/figures/
	@scripts/setup bench
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo run --locked --release --package dlock-bench -- instr $(BENCH)

bench-instr-keep: module ## bench-instr, and keep the figures in lab/bench/figures/
	@scripts/setup bench
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo run --locked --release --package dlock-bench -- instr --keep $(BENCH); \
	kept=$$?; $$CARGO_TARGET_DIR/release/dlock-bench page && exit $$kept

bench: module ## time every command beside its rivals on a quiet machine (15 minutes), write docs/benchmarks.md
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" && ulimit -n 16384 && \
	cargo build --locked --release --package dlock-bench && bench=$$CARGO_TARGET_DIR/release/dlock-bench && \
	"$$bench" times --keep $(BENCH) && "$$bench" page

bench-growth: module ## server CPU and memory by the number of locks, waiters and leases that end at once, in docs/benchmarks.md (4 minutes)
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" && ulimit -n 16384 && \
	cargo build --locked --release --package dlock-bench && bench=$$CARGO_TARGET_DIR/release/dlock-bench && \
	timeout 300 "$$bench" times --keep --only growth && "$$bench" page

bench-peers: module ## time dlock beside etcd, ZooKeeper, PostgreSQL and Redlock (25 minutes), write docs/comparison.md
	@scripts/setup peers
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" DLOCK_ETCD="$(CURDIR)/target/peers/etcd" && ulimit -n 16384 && \
	cargo build --locked --release --manifest-path lab/peers/measure/Cargo.toml && \
	cargo build --locked --package dlock-comparison && \
	{ $$CARGO_TARGET_DIR/release/dlock-peers --keep lab/peers/figures/peers.json $(BENCH); measured=$$?; \
	$$CARGO_TARGET_DIR/debug/dlock-comparison && exit $$measured; }

bench-waiting: module ## time waits in the queue and sessions on a quiet machine, fail if a target is missed
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" && ulimit -n 16384 && \
	cargo build --locked --release --package dlock-bench && bench=$$CARGO_TARGET_DIR/release/dlock-bench && \
	"$$bench" waiting

chaos: module ## locks under faults, two minutes, their histories checked (SECONDS=, SEED=, SERVER=, ATTACKERS=)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo run --locked --package dlock-chaos -- run --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED)) \
	--attackers $(or $(ATTACKERS),0)

chaos-clients: build ## all packages and `dlock run` under faults, two minutes (SECONDS= SEED= THROUGH=one, sentinel, cluster or quorum; PLANTED=1, KEEP=1)
	@scripts/setup test
	scripts/python make
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" DLOCK_PROGRAM="$$CARGO_TARGET_DIR/release/dlock" && cd lab/chaos-clients && \
	$(if $(PLANTED),$$(../../scripts/python) planted.py $(if $(HISTORY),--histories $(abspath $(HISTORY))),$$(../../scripts/python) run.py --seconds $(or $(SECONDS),120) --through $(or $(THROUGH),one) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep) $(if $(HISTORY),--history $(abspath $(HISTORY))))

adopters: build ## programs as users write them, in every language, under faults, two minutes (SECONDS= SEED= THROUGH=one, sentinel, cluster or quorum; KEEP=1)
	@scripts/setup test
	scripts/python make
	server=$$(scripts/server) && DLOCK_SERVER="$$server" DLOCK_PROGRAM="$$CARGO_TARGET_DIR/release/dlock" \
	$$(scripts/python) lab/adopters/run.py --seconds $(or $(SECONDS),120) --through $(or $(THROUGH),one) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep)

operators: build ## full disks, clocks, certificates, other versions, while programs lock (a minute, as root; KEEP=1)
	@scripts/setup test
	scripts/python make
	server=$$(scripts/server) && DLOCK_SERVER="$$server" $$(scripts/python) lab/operators/run.py $(if $(KEEP),--keep)

porcupine: build ## chaos of servers and of all clients, judged by Porcupine, an independent checker (SECONDS= for each, THROUGH=)
	$(MAKE) chaos-clients SECONDS=$(or $(SECONDS),60) HISTORY=target/clients.jsonl
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo run --locked --package dlock-chaos -- run \
	--seconds $(or $(SECONDS),60) --history target/servers.jsonl
	go=$$(scripts/go) && modules=$$(scripts/go-modules) && cd lab/porcupine && GOMODCACHE="$$modules/cache" GOFLAGS=-mod=readonly \
	GOTOOLCHAIN=local "$$go" build -o $(CURDIR)/target/porcupine . && \
	$(CURDIR)/target/porcupine $(if $(filter one,$(or $(THROUGH),one)),-one) $(CURDIR)/target/clients.jsonl && \
	$(CURDIR)/target/porcupine $(CURDIR)/target/servers.jsonl

pictures: build ## draw docs/pictures/top.svg, what `dlock top` shows of a real server (half a minute)
	DLOCK_COMMAND=$$CARGO_TARGET_DIR/release/dlock scripts/pictures

bench-wake-up: module ## time the wake-up after a release from Python: redis-py's own lock and DLock
	@scripts/setup test
	server=$$(scripts/server) && $$(scripts/python) clients/python/bench/wake_up.py --server "$$server" --module "$$DLOCK_MODULE"

rivals: module ## Redisson, redsync, redislock, redlock, redis-semaphore and redis-py beside dlock, in docs/comparison.md (10 minutes; BENCH=options)
	@scripts/setup test
	server=$$(scripts/server) && DLOCK_SERVER="$$server" lab/packages/rivals/run.py $(if $(BENCH),$(BENCH),--keep)

bench-packages: module ## time acquire and release of each package beside a plain lock on the same driver, in docs/benchmarks.md (8 minutes; BENCH=options)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" lab/packages/run.py $(if $(BENCH),$(BENCH),--keep)

bench-network: build ## time acquire and release, a hand-off and `dlock run` over a network of 0.5 ms, made of namespaces (30 s, as root; BENCH=options)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" DLOCK_PROGRAM=$$CARGO_TARGET_DIR/release/dlock lab/network/run.py $(BENCH)

bench-serve: build ## dlock serve beside a server with the module, in one run: time, CPU, memory (SERVER=, BENCH=options)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" DLOCK_PROGRAM=$$CARGO_TARGET_DIR/release/dlock lab/packages/serve.py $(BENCH)

fuzz: setup ## fuzz codec, argument parser and state machine (SECONDS= or RUNS= for each)
	FUZZ_SECONDS=$(or $(SECONDS),60) scripts/fuzz

fuzz-agent: ## random bytes and changed requests for the parser of dlock agent (SECONDS=)
	DLOCK_AGENT_FUZZ_SECONDS=$(or $(SECONDS),60) \
	cargo test --locked --release --package dlock-agent --test fuzz -- --nocapture

fuzz-server: module fuzz-tool ## random commands to a real server, held against a model (SECONDS= SEED= SERVER=)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" $(FUZZ_TOOL) differential --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

fuzz-serve: fuzz-tool ## random commands to dlock serve, held against a model (SECONDS= SEED=)
	cargo build --locked --release $(COMMAND_BUILD)
	$(FUZZ_TOOL) differential --serve $(CURDIR)/target/release/dlock --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

soak: module fuzz-tool ## 10 million operations, in which used_memory must stay flat (OPERATIONS= SERVER=)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" $(FUZZ_TOOL) soak --operations $(or $(OPERATIONS),10000000)

soak-all: build ## fuzz, simulations and chaos in turns with new seeds, added to the totals of docs/evidence.md (HOURS=)
	scripts/soak-all --hours $(or $(HOURS),8)

memory: module fuzz-tool ## the commands of fuzz-server and soak under valgrind: no leak, no invalid access (SECONDS= OPERATIONS=)
	@scripts/setup bench
	FUZZ_SECONDS=$(or $(SECONDS),120) scripts/memory

servers: ## fetch other servers to test on: target/servers/*/
	@scripts/servers

matrix: module hooks ## run the server tests on all servers of `make servers` and print a table
	@scripts/matrix $(SERVERS)

failovers: module ## fail over under load on all servers of `make servers`, three times each, print the tables of docs/failover.md (ROUNDS=)
	@scripts/failovers $(SERVERS)

upgrade: module ## take locks from the previous release to this module and back: as replicas, by RDB, by AOF
	previous=$$(scripts/previous) && server=$$(scripts/server) && \
	DLOCK_MODULE_PREVIOUS="$$previous" DLOCK_SERVER="$$server" cargo test --locked --test server upgrade:: -- --ignored

dist: setup ## build a release for an old glibc: tarball, Debian packages, checksums in target/dist (TARGETS=)
	@scripts/setup dist
	MODULE_BUILD='$(MODULE_BUILD)' COMMAND_BUILD='$(COMMAND_BUILD)' scripts/dist $(TARGETS)

test-arm64: setup ## run server tests on an emulated arm64 server (SERVERS='valkey-newest' TESTS='waiting log')
	@scripts/setup arm64
	scripts/test-arm64 $(SERVERS)

dist-check: ## install the release of `make dist` into bare Debian systems and images, and use it (needs root; SUITES=)
	@scripts/setup dist-check
	scripts/dist-check $(SUITES)

release-check: build ## check the promises of a release: versions, licenses, links, packages installed from their files
	@scripts/setup test
	scripts/packages
	scripts/release-check
	scripts/prove-release-check
	scripts/new-users
	scripts/prove-address
	$(MAKE) upgrade

dist-test: hooks ## run the server tests on the module of the release of `make dist`
	tar --extract --gzip --file target/dist/dlock-*-linux-$$(uname -m).tar.gz --directory target \
		--transform 's,^[^/]*,released,' && \
	server=$$(scripts/server) && DLOCK_MODULE=$(CURDIR)/target/released/lib/libdlock.so DLOCK_SERVER="$$server" \
	cargo test --locked --test server

lint-packaging: ## check the scripts, workflows, images and manifests
	@scripts/setup lint-packaging
	scripts/lint-packaging

test-site: site ## open the pages of the site in a browser, on a screen and a phone: diagrams, cut tables, dead links
	@scripts/setup test-site
	scripts/test-site

site: ## build the documentation as a site with search: target/site/index.html
	@scripts/setup site
	scripts/site build

clean: ## remove all that was built and fetched
	rm -rf target

fuzz-tool: setup
	cargo build --locked --release --package dlock-stress

# A dependency of `run` before `module`: a port in use is reported before the build.
port:
	@scripts/run port

# The module with the hooks for tests, which every debug build has.
hooks: setup
	cargo build $(TESTED) --lib
