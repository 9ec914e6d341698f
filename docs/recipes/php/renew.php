<?php
// Move the end of a lease on while the work goes on.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);

$token = $redis->rawCommand("DLOCK.ACQUIRE", "recipe:renew", "alice", "PX", 10000);

// To be sent whenever about a third of the lease has passed. No lease given: the one it has.
if ($redis->rawCommand("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", $token) === 1) echo "renewed\n";

$redis->rawCommand("DLOCK.RELEASE", "recipe:renew", "alice", "TOKEN", $token);
// Lost: stop. A renewal never takes a lock.
if ($redis->rawCommand("DLOCK.RENEW", "recipe:renew", "alice", "TOKEN", $token) === false) echo "nothing to renew\n";
