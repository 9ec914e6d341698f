<?php
// A write that a database rejects if a later owner of the lock has written.
$host = getenv("DLOCK_TEST_HOST") ?: "127.0.0.1";
$port = (int) (getenv("DLOCK_TEST_PORT") ?: 6379);
$redis = new Redis();
$redis->connect($host, $port);
$database = new PDO("sqlite::memory:");
$database->exec("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)");
$database->exec("INSERT INTO report VALUES (1, '', 0)");

$write = function (string $body, int $token) use ($database): bool {
    $update = $database->prepare("UPDATE report SET body = :body, fence = :token WHERE id = 1 AND fence <= :token");
    $update->bindValue(":body", $body);
    $update->bindValue(":token", $token, PDO::PARAM_INT); // in a column without a type, text is above any number
    $update->execute();
    return $update->rowCount() === 1;
};

$alice = $redis->rawCommand("DLOCK.ACQUIRE", "recipe:fencing", "alice", "PX", 30000);
$redis->del("recipe:fencing"); // her lease ended while she was paused
$bob = $redis->rawCommand("DLOCK.ACQUIRE", "recipe:fencing", "bob", "PX", 30000);

if ($write("by bob", $bob)) echo "bob: written\n";
if (!$write("by alice", $alice)) echo "alice: refused, her token is the older one\n";
$redis->rawCommand("DLOCK.RELEASE", "recipe:fencing", "bob", "TOKEN", $bob);
