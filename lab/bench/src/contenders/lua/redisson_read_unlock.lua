-- KEYS: lock, channel, latch, prefix of the owner's holds, prefix of all holds.
-- ARGV: message, owner, publishing command, lease of the latch.
-- The lock's time to live becomes that of the longest hold that is left, so it looks at every one.
local verdict = redis.call('get', KEYS[3])
if verdict ~= false then
  return tonumber(verdict)
end
if redis.call('hget', KEYS[1], 'mode') == false then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  redis.call('set', KEYS[3], 1, 'px', ARGV[4])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return nil
end
local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if left == 0 then
  redis.call('hdel', KEYS[1], ARGV[2])
end
redis.call('del', KEYS[4] .. ':' .. (left + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    local entries = tonumber(redis.call('hget', KEYS[1], field))
    if entries then
      for entry = entries, 1, -1 do
        longest = math.max(longest, redis.call('pttl', KEYS[5] .. ':' .. field .. ':holds:' .. entry))
      end
    end
  end
  if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    redis.call('set', KEYS[3], 0, 'px', ARGV[4])
    return 0
  end
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[4])
return 1
