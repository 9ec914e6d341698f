-- A lock that ends with its connection: the server renews it, and releases it when the connection closes.
local redis = require "redis"

-- redis-lua sends only commands that are declared.
for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379

local alice = redis.connect(host, port)
alice:dlock_acquire("recipe:session", "alice", "PX", 10000, "SESSION")
alice:quit() -- the death of the process would close the connection, too

-- The wait of 5 s is shorter than alice's lease, so that only the end of her connection can lead to a grant.
local bob = redis.connect(host, port)
local token = bob:dlock_acquire("recipe:session", "bob", "PX", 10000, "BLOCK", 5000)
if token then -- nil: the 5 seconds are over
    print("bob: granted when the connection of alice ended")
    bob:dlock_release("recipe:session", "bob", "TOKEN", token)
end
