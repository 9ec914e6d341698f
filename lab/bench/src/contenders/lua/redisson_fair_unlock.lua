-- KEYS: lock, queue, deadlines of the queue, channel, latch.
-- ARGV: message, lease, owner, the client's clock in ms, publishing command, lease of the latch in ms.
-- The latch keeps the verdict for a repeat of the same unlock. An owner whose deadline has passed leaves the queue.
-- Only the owner at the head of the queue gets the message, on a channel of its own.
local verdict = redis.call('get', KEYS[5])
if verdict ~= false then
  return tonumber(verdict)
end
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  if head == false then
    break
  end
  local deadline = redis.call('zscore', KEYS[3], head)
  if deadline ~= false and tonumber(deadline) > tonumber(ARGV[4]) then
    break
  end
  redis.call('zrem', KEYS[3], head)
  redis.call('lpop', KEYS[2])
end
local function tell_the_next()
  local head = redis.call('lindex', KEYS[2], 0)
  if head ~= false then
    redis.call(ARGV[5], KEYS[4] .. ':' .. head, ARGV[1])
  end
end
if redis.call('exists', KEYS[1]) == 0 then
  tell_the_next()
  redis.call('set', KEYS[5], 1, 'px', ARGV[6])
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[5], 0, 'px', ARGV[6])
  return 0
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[6])
tell_the_next()
return 1
