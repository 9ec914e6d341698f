# Many owners share a connection, and another one waits.
require "redis"

address = { host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i }
shared = Redis.new(**address, reconnect_attempts: 0)

# The owner names tell the holds on a connection apart. Their session locks all end with it.
alice = shared.call("DLOCK.ACQUIRE", "recipe:multiplexed:a", "alice", "PX", 10_000, "SESSION")
bob = shared.call("DLOCK.ACQUIRE", "recipe:multiplexed:b", "bob", "PX", 200)
puts "alice and bob: granted on one connection" if alice && bob

# BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
line = Redis.new(**address, read_timeout: 0)
carol = line.call("DLOCK.ACQUIRE", "recipe:multiplexed:b", "carol", "PX", 10_000, "BLOCK", 5_000)
bound = shared.call("DLOCK.RENEW", "recipe:multiplexed:b", "carol", "TOKEN", carol, "SESSION")
line.close
puts "carol: waited on another, bound to the first" if bound == 1

shared.call("DLOCK.RELEASE", "recipe:multiplexed:a", "alice", "TOKEN", alice)
shared.call("DLOCK.RELEASE", "recipe:multiplexed:b", "carol", "TOKEN", carol)
