<?php
// A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);
$other = new Redis();
$other->connect($host, $port);

$write = function (int $token, string $value, callable $meanwhile) use ($redis): bool {
    $redis->watch("recipe:watch_multi");
    if ($redis->rawCommand("DLOCK.CHECK", "recipe:watch_multi", $token) === false) {
        $redis->unwatch();
        return false;
    }
    $meanwhile();
    return $redis->multi()->set("recipe:value", $value)->exec() !== false;
};

$token = $redis->rawCommand("DLOCK.ACQUIRE", "recipe:watch_multi", "alice", "PX", 30000);
if ($write($token, "one", fn() => null)) echo "alice: written\n";
if (!$write($token, "two", fn() => $other->del("recipe:watch_multi"))) echo "alice: not written, the lock was lost\n";
