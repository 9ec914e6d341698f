-- Wait in the queue: one command on a connection of its own.
local redis = require "redis"

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)
client:dlock_acquire("recipe:wait", "alice", "PX", 200) -- her lease ends in a moment

-- Without a timeout, which is the default.
local line = redis.connect(host, port)
local token = line:dlock_acquire("recipe:wait", "bob", "PX", 30000, "BLOCK", 60000, "REQUEST", "1")
line:quit()

if token then -- nil: the 60 seconds are over
    print("bob: granted after waiting")
    client:dlock_release("recipe:wait", "bob", "TOKEN", token)
end
