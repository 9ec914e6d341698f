<?php

/**
 * The store with Symfony's own LockFactory and Lock, on the server of DLOCK_TEST_HOST and DLOCK_TEST_PORT. The server at
 * the socket DLOCK_TEST_PLAIN has no module.
 */

declare(strict_types=1);

use Dlock\DlockStore;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/../src/DlockStore.php';

function connected(): Redis
{
    $redis = new Redis();
    $redis->connect(getenv('DLOCK_TEST_HOST') ?: '127.0.0.1', (int) getenv('DLOCK_TEST_PORT'));

    return $redis;
}

function store(float $ttl = 300.0, ?float $longestWait = null): DlockStore
{
    return new DlockStore(connected(), $ttl, $longestWait);
}

function check(bool $condition, string $what): void
{
    if (!$condition) {
        throw new Exception("not so: $what");
    }
}

/** @param class-string $class */
function throws(string $class, callable $task): Throwable
{
    try {
        $task();
    } catch (Throwable $e) {
        check($e instanceof $class, "$class and not ".get_class($e).': '.$e->getMessage());

        return $e;
    }
    throw new Exception("$class was not thrown");
}

function until(string $what, callable $condition): void
{
    for ($end = microtime(true) + 60; !$condition(); usleep(5000)) {
        check(microtime(true) < $end, "in 60 s: $what");
    }
}

function waiters(string $name): int
{
    $info = connected()->rawCommand('DLOCK.INFO', $name);

    return $info ? $info[array_search('waiters', $info, true) + 1] : 0;
}

/** Runs a task in a process of its own, which exits with its result. */
function elsewhere(callable $task): int
{
    $pid = pcntl_fork();
    if (0 === $pid) {
        try {
            $code = $task() ? 0 : 1;
        } catch (Throwable $e) {
            fwrite(STDERR, $e."\n");
            $code = 2;
        }
        posix_kill(getmypid(), $code ? SIGKILL : SIGTERM); // no destructors of the parent's objects
        exit($code);
    }

    return $pid;
}

function succeeds(int $pid): bool
{
    pcntl_waitpid($pid, $status);

    return pcntl_wifsignaled($status) && SIGTERM === pcntl_wtermsig($status);
}

$tests = [
    'a lock has one owner at a time, and a greater token each time' => function (string $name) {
        [$one, $other] = [new LockFactory(store()), new LockFactory(store())];
        $key = new Key($name);
        $lock = $one->createLockFromKey($key);
        check($lock->acquire() && $lock->isAcquired(), 'it is acquired');
        $first = DlockStore::fencingToken($key);
        check(!$other->createLock($name)->acquire(), 'the other one is refused');
        $lock->release();
        check(!$lock->isAcquired(), 'it is released');
        $next = new Key($name);
        $second = $other->createLockFromKey($next);
        check($second->acquire(), 'the other one has it');
        check(DlockStore::fencingToken($next) > $first, 'with a greater token');
        check(!$lock->isAcquired(), 'it belongs to the other one');
    },
    'a blocking acquisition waits in the queue of the server' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 60);
        $lock->acquire();
        $waiting = elsewhere(fn () => (new LockFactory(store()))->createLock($name, 60)->acquire(true));
        until('it waits', fn () => 1 === waiters($name));
        $lock->release();
        check(succeeds($waiting), 'it has got the lock');
    },
    'a wait outlives the read timeout of the client, and leaves it as it was' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 1);
        connected()->rawCommand('DLOCK.ACQUIRE', $name, 'somebody', 'PX', 2500);
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name, 30);
        $began = microtime(true);
        check($lock->acquire(true), 'it is acquired');
        check(microtime(true) - $began > 2, 'after a wait');
        check(1.0 === (float) $redis->getReadTimeout(), 'the timeout is the same');
        check($lock->getRemainingLifetime() > 29, 'with its whole lease');
    },
    'the longest wait ends a blocking acquisition' => function (string $name) {
        connected()->rawCommand('DLOCK.ACQUIRE', $name, 'somebody');
        $began = microtime(true);
        $lock = (new LockFactory(store(longestWait: 0.5)))->createLock($name);
        throws(LockConflictedException::class, fn () => $lock->acquire(true));
        check(microtime(true) - $began < 5 && microtime(true) - $began >= 0.49, 'in time');
        check(0 === waiters($name), 'it has left the queue');
    },
    'refreshing sets the lease, and a lock that is lost is reported' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 2);
        $lock->acquire();
        check(connected()->pttl($name) <= 2000, 'its lease is the TTL');
        $lock->refresh(60);
        check(connected()->pttl($name) > 50000 && $lock->getRemainingLifetime() > 50, 'it is refreshed');
        connected()->del($name);
        throws(LockConflictedException::class, fn () => $lock->refresh());
        check(!$lock->isAcquired(), 'it is lost');
        check($lock->acquire(), 'it can be acquired again');
    },
    'a refresh that a cap cuts is no full lease' => function (string $name) {
        connected()->config('SET', 'dlock.max-hold', '3000');
        $lock = (new LockFactory(store(2.0)))->createLock($name, 2);
        $lock->acquire();
        $lock->refresh(60);
        $left = $lock->getRemainingLifetime();
        connected()->config('SET', 'dlock.max-hold', '0');
        check($left > 1 && $left <= 3, "$left s are left");
    },
    'a lock ends with its lease' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 0.3);
        $lock->acquire();
        until('it has ended', fn () => $lock->isExpired() && !$lock->isAcquired());
        check((new LockFactory(store()))->createLock($name)->acquire(), 'another one gets it');
    },
    'readers share a lock, and one of them becomes the writer' => function (string $name) {
        $factory = new LockFactory(store());
        [$one, $other, $writer] = [$factory->createLock($name), $factory->createLock($name), $factory->createLock($name)];
        check($one->acquireRead() && $other->acquireRead(), 'two readers');
        check(!$writer->acquire(), 'no writer');
        check(!$one->acquire(), 'not the writer yet');
        check($one->isAcquired() || $one->acquireRead(), 'it is still a reader');
        $other->release();
        check($one->acquire(), 'now it is the writer');
        check(!$other->acquireRead(), 'no other reader');
        check($one->acquireRead() && $other->acquireRead(), 'it is a reader again');
    },
    'a waiting reader is served after the writer' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name);
        $lock->acquire();
        $waiting = elsewhere(fn () => (new LockFactory(store()))->createLock($name)->acquireRead(true));
        until('it waits', fn () => 1 === waiters($name));
        $lock->release();
        check(succeeds($waiting), 'it reads');
    },
    'the end of the object releases the lock' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name);
        $lock->acquire();
        unset($lock);
        check(!connected()->exists($name), 'it is free');
    },
    'a key can go on in another process' => function (string $name) {
        $key = new Key($name);
        (new LockFactory(store()))->createLockFromKey($key, 60, false)->acquire();
        $lock = (new LockFactory(store()))->createLockFromKey(unserialize(serialize($key)), 60);
        check($lock->isAcquired(), 'it holds the lock');
        $lock->release();
        check(!connected()->exists($name), 'it has released it');
    },
    'the prefix of the client is put before the name' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_PREFIX, 'app:');
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name);
        $lock->acquire();
        check(1 === connected()->exists("app:$name"), 'it is there');
        $lock->release();
    },
    'a server without the module refuses loudly' => function (string $name) {
        $redis = new Redis();
        $redis->connect(getenv('DLOCK_TEST_PLAIN'));
        $store = new DlockStore($redis);
        $lock = (new LockFactory($store))->createLock($name);
        foreach ([fn () => $lock->acquire(), fn () => $lock->acquire(true), fn () => $lock->acquireRead()] as $acquire) {
            $error = throws(LockAcquiringException::class, $acquire);
            check(str_contains($error->getPrevious()->getMessage(), 'is the dlock module loaded'), 'it says why');
        }
    },
    'a key of another type is refused, and a server that is gone is an error' => function (string $name) {
        connected()->set($name, 'text');
        $lock = (new LockFactory(store()))->createLock($name);
        $error = throws(LockAcquiringException::class, fn () => $lock->acquire());
        check(str_contains($error->getPrevious()->getMessage(), 'WRONGTYPE'), 'it says why');
        connected()->del($name);
        $redis = connected();
        $store = new DlockStore($redis);
        $held = (new LockFactory($store))->createLock($name, 60, false);
        $held->acquire();
        $redis->close();
        $redis->connect(getenv('DLOCK_TEST_PLAIN'));
        throws(LockReleasingException::class, fn () => $held->release());
    },
    'a reply that does not come in time is not the answer to the next command' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name);
        connected()->rawCommand('CLIENT', 'PAUSE', 1000, 'WRITE');
        throws(LockAcquiringException::class, fn () => $lock->acquire());
        connected()->set("$name:after", '', ['EX' => 60]); // which waits for the end of the pause
        until('what was granted later is released', fn () => !connected()->exists($name));
        check($lock->acquire() && $lock->isAcquired(), 'the connection is a new one');
        $lock->release();
    },
    'what cannot be a lock is refused' => function (string $name) {
        throws(InvalidTtlException::class, fn () => store(0));
        throws(InvalidArgumentException::class, fn () => store(1, 0));
        throws(LockAcquiringException::class, fn () => (new LockFactory(store()))->createLock('')->acquire());
    },
];

$failed = 0;
foreach (array_values($tests) as $number => $test) {
    $title = array_keys($tests)[$number];
    try {
        $test('php:'.getmypid().":$number");
        echo "ok: $title\n";
    } catch (Throwable $e) {
        echo "FAILED: $title\n$e\n";
        ++$failed;
    }
}
exit($failed ? 1 : 0);
