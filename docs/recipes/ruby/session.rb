# A lock that lives as long as a connection: the server renews it, and frees it when the connection ends.
require "redis"

address = { host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i }

# No reconnecting by itself: the lock would be gone, and nobody told.
alice = Redis.new(**address, reconnect_attempts: 0)
alice.call("DLOCK.ACQUIRE", "recipe:session", "alice", "PX", 10_000, "SESSION")
alice.close # or the process dies

bob = Redis.new(**address, read_timeout: 0)
token = bob.call("DLOCK.ACQUIRE", "recipe:session", "bob", "PX", 10_000, "BLOCK", 5_000)
puts "bob: granted when the connection of alice ended" if token
bob.call("DLOCK.RELEASE", "recipe:session", "bob", "TOKEN", token)
