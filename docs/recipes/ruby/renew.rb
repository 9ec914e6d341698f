# Renew a lease while the work goes on.
require "redis"

redis = Redis.new(host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i)

token = redis.call("DLOCK.ACQUIRE", "recipe:renew", "alice", "PX", 10_000)

# Send this whenever about a third of the lease has passed. Without a lease, it keeps the one it has.
puts "renewed" if redis.call("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", token) == 1

redis.call("DLOCK.RELEASE", "recipe:renew", "alice", "TOKEN", token)
# The lock is lost: stop the work. A renewal never acquires a lock.
puts "nothing to renew" if redis.call("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", token).nil?
