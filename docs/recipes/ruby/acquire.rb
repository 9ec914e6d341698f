# Take a lock, or hear at once that somebody else has it.
require "redis"

redis = Redis.new(host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i)

token = redis.call("DLOCK.ACQUIRE", "recipe:acquire", "alice", "PX", 30_000)
puts "alice: granted" if token
puts "bob: not granted" unless redis.call("DLOCK.ACQUIRE", "recipe:acquire", "bob", "PX", 30_000)

# With its token a release that comes late cannot touch the next hold.
puts "alice: released" if redis.call("DLOCK.RELEASE", "recipe:acquire", "alice", "TOKEN", token) == 1
