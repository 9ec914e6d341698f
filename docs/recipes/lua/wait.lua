-- Wait in the queue: one command on a connection of its own.
local redis = require "redis"

-- redis-lua sends only commands that are declared.
for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)
client:dlock_acquire("recipe:wait", "alice", "PX", 200) -- alice's lease ends after 200 ms

-- The connection has no read timeout, unless the program sets one.
local line = redis.connect(host, port)
local token = line:dlock_acquire("recipe:wait", "bob", "PX", 30000, "BLOCK", 60000, "REQUEST", "1")
line:quit()

if token then -- nil: the wait of 60 seconds has ended without a grant
    print("bob: granted after waiting")
    client:dlock_release("recipe:wait", "bob", "TOKEN", token)
end
