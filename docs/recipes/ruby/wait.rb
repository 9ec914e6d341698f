# Wait in the queue: one command on a connection of its own.
require "redis"

address = { host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i }
redis = Redis.new(**address)
redis.call("DLOCK.ACQUIRE", "recipe:wait", "alice", "PX", 200) # her lease ends in a moment

# The client gives up a read after 5 seconds (redis-rb 5: 1 second) unless told otherwise, and sends the command again.
line = Redis.new(**address, read_timeout: 70)
token = line.call("DLOCK.ACQUIRE", "recipe:wait", "bob", "PX", 30_000, "BLOCK", 60_000, "REQUEST", "1")
line.close

if token # nil: the 60 seconds are over
  puts "bob: granted after waiting"
  redis.call("DLOCK.RELEASE", "recipe:wait", "bob", "TOKEN", token)
end
