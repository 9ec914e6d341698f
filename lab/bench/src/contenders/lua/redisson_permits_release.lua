-- KEYS: permits that are left, channel, ends of leases.
-- ARGV: id, permits given back, the client's clock, publishing command.
local ends = redis.call('zscore', KEYS[3], ARGV[1])
if redis.call('zrem', KEYS[3], ARGV[1]) ~= 1 then
  return 0
end
local left = redis.call('incrby', KEYS[1], ARGV[2])
redis.call(ARGV[4], KEYS[2], left)
if tonumber(ends) <= tonumber(ARGV[3]) then
  return 0
end
return 1
