# A lock that ends with its connection: the server renews it, and releases it when the connection closes.
require "redis"

address = { host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i }

# No automatic reconnection: the lock would be gone without notice.
alice = Redis.new(**address, reconnect_attempts: 0)
alice.call("DLOCK.ACQUIRE", "recipe:session", "alice", "PX", 10_000, "SESSION")
alice.close # or the process dies

bob = Redis.new(**address, read_timeout: 0)
token = bob.call("DLOCK.ACQUIRE", "recipe:session", "bob", "PX", 10_000, "BLOCK", 5_000)
puts "bob: granted when the connection of alice ended" if token
bob.call("DLOCK.RELEASE", "recipe:session", "bob", "TOKEN", token)
