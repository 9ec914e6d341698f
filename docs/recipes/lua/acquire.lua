-- Acquire a lock, or learn at once that another owner holds it.
local redis = require "redis"

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)

local token = client:dlock_acquire("recipe:acquire", "alice", "PX", 30000)
if token then print("alice: granted") end
if not client:dlock_acquire("recipe:acquire", "bob", "PX", 30000) then print("bob: not granted") end

-- The release carries the token, so a late release cannot affect the next hold.
if client:dlock_release("recipe:acquire", "alice", "TOKEN", token) == 1 then print("alice: released") end
