-- A write that a database rejects if a later owner of the lock has written.
local redis = require "redis"
local sqlite = require("luasql.sqlite3").sqlite3()

for _, name in ipairs { "ACQUIRE", "RLOCK", "WLOCK", "RENEW", "RELEASE", "CHECK" } do
    redis.commands["dlock_" .. name:lower()] = redis.command("DLOCK." .. name)
end

local host = os.getenv("DLOCK_TEST_HOST") or "127.0.0.1"
local port = os.getenv("DLOCK_TEST_PORT") or 6379
local client = redis.connect(host, port)
local database = sqlite:connect(":memory:")
database:execute("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)")
database:execute("INSERT INTO report VALUES (1, '', 0)")

local function write(body, token)
    local update = "UPDATE report SET body = '%s', fence = %d WHERE id = 1 AND fence <= %d"
    return database:execute(update:format(database:escape(body), token, token)) == 1
end

local alice = client:dlock_acquire("recipe:fencing", "alice", "PX", 30000)
client:del("recipe:fencing") -- her lease ended while she was paused
local bob = client:dlock_acquire("recipe:fencing", "bob", "PX", 30000)

if write("by bob", bob) then print("bob: written") end
if not write("by alice", alice) then print("alice: refused, her token is the older one") end
client:dlock_release("recipe:fencing", "bob", "TOKEN", bob)
