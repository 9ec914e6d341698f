<?php
// A connection for many owners, and a second one for waiting.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$shared = new Redis();
$shared->connect($host, $port);

// The owner names tell the holds on a connection apart. Their session locks all end with it.
$alice = $shared->rawCommand("DLOCK.ACQUIRE", "recipe:multiplexed:a", "alice", "PX", 10000, "SESSION");
$bob = $shared->rawCommand("DLOCK.ACQUIRE", "recipe:multiplexed:b", "bob", "PX", 200);
if ($alice && $bob) echo "alice and bob: granted on one connection\n";

// BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
$line = new Redis();
$line->connect($host, $port);
$line->setOption(Redis::OPT_READ_TIMEOUT, -1);
$carol = $line->rawCommand("DLOCK.ACQUIRE", "recipe:multiplexed:b", "carol", "PX", 10000, "BLOCK", 5000);
$bound = $shared->rawCommand("DLOCK.RENEW", "recipe:multiplexed:b", "carol", "TOKEN", $carol, "SESSION");
$line->close();
if ($bound === 1) echo "carol: waited on another, bound to the first\n";

$shared->rawCommand("DLOCK.RELEASE", "recipe:multiplexed:a", "alice", "TOKEN", $alice);
$shared->rawCommand("DLOCK.RELEASE", "recipe:multiplexed:b", "carol", "TOKEN", $carol);
