-- KEYS: permits that are left. ARGV: permits wanted.
local left = redis.call('get', KEYS[1])
if left ~= false and tonumber(left) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  return 1
end
return 0
