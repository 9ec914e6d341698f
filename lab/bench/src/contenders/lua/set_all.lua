-- KEYS: locks. ARGV: owner, lease. 1: all are taken, 0: none.
for at, key in ipairs(KEYS) do
  if not redis.call('set', key, ARGV[1], 'nx', 'px', ARGV[2]) then
    for taken = 1, at - 1 do
      redis.call('del', KEYS[taken])
    end
    return 0
  end
end
return 1
