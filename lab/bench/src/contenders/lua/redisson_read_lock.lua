-- KEYS: lock, prefix of the owner's holds. ARGV: lease, owner, owner as a writer.
-- Each entry of a reader has a key of its own, whose time to live is its lease.
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
  local hold = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('set', hold, 1)
  redis.call('pexpire', hold, ARGV[1])
  local left = redis.call('pttl', KEYS[1])
  redis.call('pexpire', KEYS[1], math.max(left, ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])
