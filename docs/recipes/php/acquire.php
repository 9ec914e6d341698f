<?php
// Acquire a lock, or learn at once that another owner holds it. (phpredis: nil is false)
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);

$token = $redis->rawCommand("DLOCK.ACQUIRE", "recipe:acquire", "alice", "PX", 30000);
if ($token !== false) echo "alice: granted\n";
if ($redis->rawCommand("DLOCK.ACQUIRE", "recipe:acquire", "bob", "PX", 30000) === false) echo "bob: not granted\n";

// The release carries the token, so a late release cannot affect the next hold.
if ($redis->rawCommand("DLOCK.RELEASE", "recipe:acquire", "alice", "TOKEN", $token) === 1) echo "alice: released\n";
