-- KEYS: permits by the end of their lease. ARGV: limit, the client's clock, end of the lease, owner.
redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[2])
if redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('zadd', KEYS[1], ARGV[3], ARGV[4])
  return 1
end
return 0
