-- Renew a lease while the work goes on.
local redis = require "redis"

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)

local token = client:dlock_acquire("recipe:renew", "alice", "PX", 10000)

-- Send this whenever about a third of the lease has passed. Without PX, the hold keeps its lease.
if client:dlock_renew("recipe:renew", "alice", "TOKEN", token) == 1 then print("renewed") end

client:dlock_release("recipe:renew", "alice", "TOKEN", token)
-- The lock is lost: stop the work. A renewal never acquires a lock.
if client:dlock_renew("recipe:renew", "alice", "TOKEN", token) == nil then print("nothing to renew") end
