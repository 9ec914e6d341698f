# A write that a database rejects if a later owner of the lock has written.
require "redis"
require "sqlite3"

redis = Redis.new(host: ENV.fetch("DLOCK_TEST_HOST", "127.0.0.1"), port: ENV.fetch("DLOCK_TEST_PORT", 6379).to_i)
database = SQLite3::Database.new(":memory:")
database.execute("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)")
database.execute("INSERT INTO report VALUES (1, '', 0)")

write = lambda do |body, token|
  database.execute("UPDATE report SET body = ?, fence = ? WHERE id = 1 AND fence <= ?", [body, token, token])
  database.changes == 1
end

alice = redis.call("DLOCK.ACQUIRE", "recipe:fencing", "alice", "PX", 30_000)
redis.call("DEL", "recipe:fencing") # her lease ended while she was paused
bob = redis.call("DLOCK.ACQUIRE", "recipe:fencing", "bob", "PX", 30_000)

puts "bob: written" if write.call("by bob", bob)
puts "alice: refused, her token is the older one" unless write.call("by alice", alice)
redis.call("DLOCK.RELEASE", "recipe:fencing", "bob", "TOKEN", bob)
