# Wait in the queue: one command on a connection of its own.
require "redis"

address = { host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i }
redis = Redis.new(**address)
redis.call("DLOCK.ACQUIRE", "recipe:wait", "alice", "PX", 200) # alice's lease ends after 200 ms

# By default the client gives up a read after 5 seconds (redis-rb 5: 1 second) and sends the command again. The read
# timeout is therefore longer than the wait, and REQUEST marks a command that is sent again as the same request.
line = Redis.new(**address, read_timeout: 70)
token = line.call("DLOCK.ACQUIRE", "recipe:wait", "bob", "PX", 30_000, "BLOCK", 60_000, "REQUEST", "1")
line.close

if token # nil: the wait of 60 seconds has ended without a grant
  puts "bob: granted after waiting"
  redis.call("DLOCK.RELEASE", "recipe:wait", "bob", "TOKEN", token)
end
