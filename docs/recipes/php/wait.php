<?php
// Wait in the queue: one command on a connection of its own.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);
$redis->rawCommand("DLOCK.ACQUIRE", "recipe:wait", "alice", "PX", 200); // her lease ends in a moment

// The client gives up a read after default_socket_timeout (60 seconds) unless told otherwise.
$line = new Redis();
$line->connect($host, $port);
$line->setOption(Redis::OPT_READ_TIMEOUT, -1);
$token = $line->rawCommand("DLOCK.ACQUIRE", "recipe:wait", "bob", "PX", 30000, "BLOCK", 60000, "REQUEST", "1");
$line->close();

if ($token !== false) { // false: the 60 seconds are over
    echo "bob: granted after waiting\n";
    $redis->rawCommand("DLOCK.RELEASE", "recipe:wait", "bob", "TOKEN", $token);
}
