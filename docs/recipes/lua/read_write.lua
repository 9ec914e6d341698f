-- Readers share a lock, a writer excludes all others.
local redis = require "redis"

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)

local alice = client:dlock_rlock("recipe:read_write", "alice", "PX", 30000)
local bob = client:dlock_rlock("recipe:read_write", "bob", "PX", 30000)
if alice and bob then print("alice and bob: reading") end
if not client:dlock_wlock("recipe:read_write", "carol", "PX", 30000) then print("carol: not granted") end

client:dlock_release("recipe:read_write", "alice", "TOKEN", alice)
client:dlock_release("recipe:read_write", "bob", "TOKEN", bob)
local carol = client:dlock_wlock("recipe:read_write", "carol", "PX", 30000)
if carol then print("carol: writing") end
client:dlock_release("recipe:read_write", "carol", "TOKEN", carol)
