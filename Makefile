# dlock. `make` lists what can be done.

PORT   ?= 6379
# The server of run, demo, test and bench-instr: redis-server or valkey-server on PATH unless named here.
SERVER ?=

export PORT SERVER
export CARGO_TARGET_DIR := $(CURDIR)/target
export DLOCK_MODULE := $(CURDIR)/target/release/libdlock.so
export DLOCK_MODULE_HOOKS := $(CURDIR)/target/hooks/libdlock.so
export RUST_TEST_THREADS ?= 8

FUZZ_TOOL := $(CURDIR)/target/release/dlock-fuzz-server

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build run demo test lint fmt bench-instr bench-waiting servers fuzz fuzz-server soak memory clean hooks port fuzz-tool

help: ## this list
	@echo 'dlock: distributed locks as a native feature of Redis and Valkey'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'
	@echo
	@echo '  PORT=6380       another port for run'
	@echo '  SERVER=path     another server for run, demo, test and bench-instr'

setup: ## find what the build and the tests need, install what is missing
	@scripts/setup

build: setup ## build the module: target/release/libdlock.so
	cargo rustc --locked --release --package dlock --lib --crate-type cdylib

run: port build ## start a server with the module, in the foreground on 127.0.0.1:PORT (6379)
	@scripts/run

demo: build ## play a session of locking, on a server of its own
	@scripts/demo

test: build hooks ## run all tests (SERVER=path: on that server)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo test --locked --workspace

lint: setup ## check format, clippy and where unsafe code is
	@scripts/setup lint
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	scripts/check-unsafe

fmt: ## format the code
	cargo fmt --all

bench-instr: build ## count the instructions of every command (callgrind), fail if they are over the limit
	@scripts/setup bench
	server=$$(scripts/server) && DLOCK_SERVER="$$server" cargo run --locked --release --package dlock-bench -- instr

bench-waiting: build ## time waiting in line and sessions on a quiet machine, fail if a target is missed
	server=$$(scripts/server) && export DLOCK_SERVER="$$server" && ulimit -n 16384 && \
	cargo build --locked --release --package dlock-bench && bench=$$CARGO_TARGET_DIR/release/dlock-bench && \
	{ "$$bench" waiting; waiting=$$?; "$$bench" sessions && exit $$waiting; }

fuzz: setup ## fuzz codec, argument parser and state machine (SECONDS= or RUNS= for each)
	FUZZ_SECONDS=$(or $(SECONDS),60) scripts/fuzz

fuzz-server: build fuzz-tool ## random commands to a real server, held against a model (SECONDS= SEED= SERVER=)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" $(FUZZ_TOOL) differential --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

soak: build fuzz-tool ## 10 million operations, after which no memory may be missing (OPERATIONS= SERVER=)
	server=$$(scripts/server) && DLOCK_SERVER="$$server" $(FUZZ_TOOL) soak --operations $(or $(OPERATIONS),10000000)

memory: build fuzz-tool ## the same commands under valgrind: no leak, no invalid access (SECONDS= OPERATIONS=)
	@scripts/setup bench
	FUZZ_SECONDS=$(or $(SECONDS),120) scripts/memory

servers: ## fetch other servers to test on: target/servers/*/
	@scripts/servers

clean: ## remove all that was built and fetched
	rm -rf target

fuzz-tool: setup
	cargo build --locked --release --package dlock-fuzz-server

# Better said before the build than after it.
port:
	@scripts/run port

# The module with the hooks that only tests may use.
hooks: setup
	cargo rustc --locked --profile hooks --package dlock --lib --crate-type cdylib --features panic-hook
