-- KEYS: permits that are left, ends of leases, channel.
-- ARGV: permits wanted, end of their leases, the client's clock, the end that means no end, publishing command, ids.
-- Lapsed permits are taken back first.
local lapsed = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1])
if #lapsed > 0 then
  redis.call('zrem', KEYS[2], unpack(lapsed))
  local left = redis.call('incrby', KEYS[1], #lapsed)
  if tonumber(left) > 0 then
    redis.call(ARGV[5], KEYS[3], left)
  end
end
local left = redis.call('get', KEYS[1])
if left ~= false and tonumber(left) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  for id = 6, #ARGV do
    redis.call('zadd', KEYS[2], ARGV[2], ARGV[id])
  end
  local rest = redis.call('pttl', KEYS[1])
  if rest > 0 then
    redis.call('pexpire', KEYS[2], rest)
  end
  return redis.status_reply('OK')
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
if first[1] ~= nil and first[2] ~= ARGV[4] then
  return ':' .. first[2]
end
return nil
