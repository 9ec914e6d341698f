-- KEYS: locks. ARGV: owner. How many were the owner's.
local deleted = 0
for _, key in ipairs(KEYS) do
  if redis.call('get', key) == ARGV[1] then
    deleted = deleted + redis.call('del', key)
  end
end
return deleted
