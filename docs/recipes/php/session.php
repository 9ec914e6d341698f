<?php
// A lock that ends with its connection: the server renews it, and releases it when the connection closes.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);

// Not pconnect: that connection, and so the lock, would outlive the request.
$alice = new Redis();
$alice->connect($host, $port);
// No automatic reconnection: the lock would be gone without notice.
$alice->setOption(Redis::OPT_MAX_RETRIES, 0);
$alice->rawCommand("DLOCK.ACQUIRE", "recipe:session", "alice", "PX", 10000, "SESSION");
$alice->close(); // or the process dies

$bob = new Redis();
$bob->connect($host, $port);
$bob->setOption(Redis::OPT_READ_TIMEOUT, -1);
$token = $bob->rawCommand("DLOCK.ACQUIRE", "recipe:session", "bob", "PX", 10000, "BLOCK", 5000);
if ($token !== false) echo "bob: granted when the connection of alice ended\n";
$bob->rawCommand("DLOCK.RELEASE", "recipe:session", "bob", "TOKEN", $token);
