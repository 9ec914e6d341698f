# A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
require "redis"

address = { host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i }
redis = Redis.new(**address)
other = Redis.new(**address)

write = lambda do |token, value, meanwhile|
  redis.watch("recipe:watch_multi") do
    next redis.unwatch && nil unless redis.call("DLOCK.CHECK", "recipe:watch_multi", token)

    meanwhile.call
    redis.multi { |transaction| transaction.set("recipe:value", value) }
  end
end

token = redis.call("DLOCK.ACQUIRE", "recipe:watch_multi", "alice", "PX", 30_000)
puts "alice: written" if write.call(token, "one", -> {})
puts "alice: not written, the lock was lost" unless write.call(token, "two", -> { other.del("recipe:watch_multi") })
