-- KEYS: lock, channel, latch. ARGV: message, lease, owner, publishing command, lease of the latch.
-- The latch keeps the reply (0: still held, 1: released) for a repeat of the same unlock.
local verdict = redis.call('get', KEYS[3])
if verdict ~= false then
  return tonumber(verdict)
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1
