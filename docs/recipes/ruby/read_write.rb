# Readers share a lock, a writer excludes all others.
require "redis"

redis = Redis.new(host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i)

alice = redis.call("DLOCK.RLOCK", "recipe:read_write", "alice", "PX", 30_000)
bob = redis.call("DLOCK.RLOCK", "recipe:read_write", "bob", "PX", 30_000)
puts "alice and bob: reading" if alice && bob
puts "carol: not granted" unless redis.call("DLOCK.WLOCK", "recipe:read_write", "carol", "PX", 30_000)

redis.call("DLOCK.RELEASE", "recipe:read_write", "alice", "TOKEN", alice)
redis.call("DLOCK.RELEASE", "recipe:read_write", "bob", "TOKEN", bob)
carol = redis.call("DLOCK.WLOCK", "recipe:read_write", "carol", "PX", 30_000)
puts "carol: writing" if carol
redis.call("DLOCK.RELEASE", "recipe:read_write", "carol", "TOKEN", carol)
