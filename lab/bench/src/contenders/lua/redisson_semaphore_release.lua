-- KEYS: permits that are left, channel. ARGV: permits given back, publishing command.
local left = redis.call('incrby', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], left)
