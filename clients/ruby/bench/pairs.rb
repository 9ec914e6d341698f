# frozen_string_literal: true

# Acquires and releases a lock again and again: what a pair costs the processor. Called by lab/packages/run.py with PORT
# KIND PAIRS. `plain` is SET NX and a script that deletes, over redis-rb. Prints the microseconds of the processor and
# those that have passed.

require "redis"
require "securerandom"
require_relative "../lib/dlock"

DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

port, kind, pairs = ARGV
redis = Redis.new(host: "127.0.0.1", port: Integer(port))
script = redis.script(:load, DELETE)
locks = Dlock.new(redis)
pair = {
  "plain" => lambda do
    owner = SecureRandom.uuid
    raise "the lock is not free" unless redis.set("pairs", owner, nx: true, px: 30_000)

    redis.evalsha(script, keys: ["pairs"], argv: [owner])
  end,
  "lease" => -> { locks.lock("pairs", lease: 30, renew: false) { nil } },
  "kept" => -> { locks.lock("pairs", lease: 30) { nil } }
}.fetch(kind)

play = ->(times) { times.times { pair.call } }
play.call(Integer(pairs) / 10)
cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :microsecond)
began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
play.call(Integer(pairs))
puts [Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :microsecond) - cpu,
      Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - began].join(" ")
