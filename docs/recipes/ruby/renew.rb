# Move the end of a lease on while the work goes on.
require "redis"

redis = Redis.new(host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i)

token = redis.call("DLOCK.ACQUIRE", "recipe:renew", "alice", "PX", 10_000)

# To be sent whenever about a third of the lease has passed. No lease given: the one it has.
puts "renewed" if redis.call("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", token) == 1

redis.call("DLOCK.RELEASE", "recipe:renew", "alice", "TOKEN", token)
# Lost: stop. A renewal never takes a lock.
puts "nothing to renew" if redis.call("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", token).nil?
