# dlock. `make` lists what can be done.

PORT   ?= 6379
# The server of run, demo, test and bench-instr: redis-server or valkey-server on PATH unless named here.
SERVER ?=
# How many seeds quorum-sim runs, and the first of them.
RUNS   ?= 100000
SEED   ?= 0

export PORT SERVER
export CARGO_TARGET_DIR := $(CURDIR)/target
export DLOCK_MODULE := $(CURDIR)/target/release/libdlock.so
export DLOCK_MODULE_HOOKS := $(CURDIR)/target/hooks/libdlock.so
export RUST_TEST_THREADS ?= 8

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build run demo test lint fmt bench-instr bench-waiting bench-quorum quorum-sim quorum-kills servers clean module hooks port

help: ## this list
	@echo 'dlock: distributed locks as a native feature of Redis and Valkey'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'
	@echo
	@echo '  PORT=6380       another port for run'
	@echo '  SERVER=path     another server for run, demo, test and bench-instr'

setup: ## find what the build and the tests need, install what is missing
	@scripts/setup

build: module ## build the module and the command: target/release/libdlock.so, target/release/dlock
	cargo build --locked --release --package dlock-cli

module: setup
	cargo rustc --locked --release --package dlock --lib --crate-type cdylib

run: port module ## start a server with the module, in the foreground on 127.0.0.1:PORT (6379)
	@scripts/run

demo: module ## play a session of locking, on a server of its own
	@scripts/demo

test: module hooks ## run all tests (SERVER=path: on that server)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo test --locked --workspace

lint: setup ## check format, clippy and where unsafe code is
	@scripts/setup lint
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	scripts/check-unsafe

quorum-sim: setup ## simulate the quorum: RUNS=100000 seeded runs, from SEED=0
	DLOCK_QUORUM_RUNS=$(RUNS) DLOCK_QUORUM_SEED=$(SEED) cargo test --locked --package dlock-quorum simulation -- --nocapture

quorum-kills: module ## 20 clients of five servers that are killed at random, for a minute
	server=$$(scripts/server) && DLOCK_SERVER="$$server" DLOCK_QUORUM_SECONDS=60 \
	cargo test --locked --package dlock-client --test quorum twenty_clients -- --nocapture

bench-quorum: module ## time a quorum against Redlock on a quiet machine, fail if a target is missed
	server=$$(scripts/server) && DLOCK_SERVER="$$server" \
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	cargo test --locked --release --package dlock-client --test quorum figures -- --ignored --nocapture

fmt: ## format the code
	cargo fmt --all

bench-instr: module ## count the instructions of every command (callgrind), fail if they are over the limit
	@scripts/setup bench
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo run --locked --release --package dlock-bench -- instr

bench-waiting: module ## time waiting in line and sessions on a quiet machine, fail if a target is missed
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" && ulimit -n 16384 && \
	cargo build --locked --release --package dlock-bench && bench=$$CARGO_TARGET_DIR/release/dlock-bench && \
	{ "$$bench" waiting; waiting=$$?; "$$bench" sessions && exit $$waiting; }

servers: ## fetch other servers to test on: target/servers/*/
	@scripts/servers

clean: ## remove all that was built and fetched
	rm -rf target

# Better said before the build than after it.
port:
	@scripts/run port

# The module with the hooks that only tests may use.
hooks: setup
	cargo rustc --locked --profile hooks --package dlock --lib --crate-type cdylib --features panic-hook
