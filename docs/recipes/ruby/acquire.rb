# Acquire a lock, or learn at once that another owner holds it.
require "redis"

redis = Redis.new(host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i)

token = redis.call("DLOCK.ACQUIRE", "recipe:acquire", "alice", "PX", 30_000)
puts "alice: granted" if token
puts "bob: not granted" unless redis.call("DLOCK.ACQUIRE", "recipe:acquire", "bob", "PX", 30_000)

# The release carries the token, so a late release cannot affect the next hold.
puts "alice: released" if redis.call("DLOCK.RELEASE", "recipe:acquire", "alice", "TOKEN", token) == 1
