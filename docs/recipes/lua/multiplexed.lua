-- One connection for many owners, another one for waiting.
local redis = require "redis"

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local shared = redis.connect(host, port)

-- The owner names tell the holds on a connection apart. All holds with SESSION end with it.
local alice = shared:dlock_acquire("recipe:multiplexed:a", "alice", "PX", 10000, "SESSION")
local bob = shared:dlock_acquire("recipe:multiplexed:b", "bob", "PX", 200)
if alice and bob then print("alice and bob: granted on one connection") end

-- BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
local line = redis.connect(host, port)
local carol = line:dlock_acquire("recipe:multiplexed:b", "carol", "PX", 10000, "BLOCK", 5000)
local bound = shared:dlock_renew("recipe:multiplexed:b", "carol", "TOKEN", carol, "SESSION")
line:quit()
if bound == 1 then print("carol: waited on another, bound to the first") end

shared:dlock_release("recipe:multiplexed:a", "alice", "TOKEN", alice)
shared:dlock_release("recipe:multiplexed:b", "carol", "TOKEN", carol)
