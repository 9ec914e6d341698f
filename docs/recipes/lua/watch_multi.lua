-- A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
local redis = require "redis"

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)
local other = redis.connect(host, port)

-- Writes if the lock is still held, and returns whether it has written. `meanwhile` runs between the check and MULTI.
local function write(token, value, meanwhile)
    client:watch("recipe:watch_multi")
    if not client:dlock_check("recipe:watch_multi", token) then
        client:unwatch()
        return false
    end
    meanwhile()
    client:multi()
    client:set("recipe:value", value)
    return client:exec() ~= nil
end

local token = client:dlock_acquire("recipe:watch_multi", "alice", "PX", 30000)
if write(token, "one", function() end) then print("alice: written") end
if not write(token, "two", function() other:del("recipe:watch_multi") end) then
    print("alice: not written, the lock was lost")
end
