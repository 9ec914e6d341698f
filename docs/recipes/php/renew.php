<?php
// Renew a lease while the work goes on.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);

$token = $redis->rawCommand("DLOCK.ACQUIRE", "recipe:renew", "alice", "PX", 10000);

// Send this whenever about a third of the lease has passed. Without a lease, it keeps the one it has.
if ($redis->rawCommand("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", $token) === 1) echo "renewed\n";

$redis->rawCommand("DLOCK.RELEASE", "recipe:renew", "alice", "TOKEN", $token);
// The lock is lost: stop the work. A renewal never acquires a lock.
if ($redis->rawCommand("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", $token) === false) echo "nothing to renew\n";
