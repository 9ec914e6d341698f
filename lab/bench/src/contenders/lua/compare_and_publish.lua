-- KEYS: lock, channel. ARGV: owner. Tells those who wait that the lock is free.
if redis.call('get', KEYS[1]) == ARGV[1] then
  redis.call('del', KEYS[1])
  redis.call('publish', KEYS[2], 'free')
  return 1
end
return 0
