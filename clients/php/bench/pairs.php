<?php

/**
 * Measures what it costs to acquire and release a lock. lab/packages/run.py calls it with PORT KIND PAIRS. The kind
 * `plain` is Symfony's RedisStore over the same phpredis. Prints the time of the processor and the time that passed, in
 * µs.
 */

declare(strict_types=1);

use Dlock\DlockStore;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

require 'Symfony/Component/Lock/autoload.php';
spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Dlock\\')) {
        require __DIR__.'/../src/'.str_replace('\\', '/', substr($class, 6)).'.php';
    }
});

[, $port, $kind, $pairs] = $argv;
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $port);
$factory = new LockFactory('plain' === $kind ? new RedisStore($redis) : new DlockStore($redis));
$play = static function (int $times) use ($factory): void {
    for ($i = 0; $i < $times; ++$i) {
        $lock = $factory->createLock('pairs', 30);
        $lock->acquire() || throw new Exception('the lock is not free');
        $lock->release();
    }
};
$cpu = static function (): int {
    $used = getrusage();
    $seconds = $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'];

    return $seconds * 1_000_000 + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
};
// The first pairs, which load the classes, do not count.
$play(intdiv((int) $pairs, 10));
[$before, $began] = [$cpu(), hrtime(true)];
$play((int) $pairs);
echo $cpu() - $before, ' ', intdiv(hrtime(true) - $began, 1000), "\n";
