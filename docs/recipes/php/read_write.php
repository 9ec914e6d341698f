<?php
// Readers share a lock, a writer excludes all others.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);

$alice = $redis->rawCommand("DLOCK.RLOCK", "recipe:read_write", "alice", "PX", 30000);
$bob = $redis->rawCommand("DLOCK.RLOCK", "recipe:read_write", "bob", "PX", 30000);
if ($alice && $bob) echo "alice and bob: reading\n";
if (!$redis->rawCommand("DLOCK.WLOCK", "recipe:read_write", "carol", "PX", 30000)) echo "carol: not granted\n";

$redis->rawCommand("DLOCK.RELEASE", "recipe:read_write", "alice", "TOKEN", $alice);
$redis->rawCommand("DLOCK.RELEASE", "recipe:read_write", "bob", "TOKEN", $bob);
$carol = $redis->rawCommand("DLOCK.WLOCK", "recipe:read_write", "carol", "PX", 30000);
if ($carol) echo "carol: writing\n";
$redis->rawCommand("DLOCK.RELEASE", "recipe:read_write", "carol", "TOKEN", $carol);
