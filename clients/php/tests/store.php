<?php

/**
 * Tests the store with Symfony's own LockFactory and Lock, on the server of DLOCK_TEST_HOST and DLOCK_TEST_PORT. The
 * servers at the sockets DLOCK_TEST_SECOND and DLOCK_TEST_THIRD have the module, too; the one at DLOCK_TEST_PLAIN has
 * not. A cluster of one node is at DLOCK_TEST_CLUSTER.
 */

declare(strict_types=1);

use Dlock\DlockStore;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\CombinedStore;
use Symfony\Component\Lock\Store\RedisStore;
use Symfony\Component\Lock\Strategy\ConsensusStrategy;
use Symfony\Component\Lock\Strategy\UnanimousStrategy;

require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/kit.php';
require __DIR__.'/../src/DlockStore.php';

function store(float $ttl = 300.0, ?float $longestWait = null): DlockStore
{
    return new DlockStore(connected(), $ttl, $longestWait);
}

/** Returns new clients of the three servers that have the module. */
function three(): array
{
    $clients = [connected()];
    foreach (['DLOCK_TEST_SECOND', 'DLOCK_TEST_THIRD'] as $socket) {
        $clients[] = new Redis();
        end($clients)->connect(getenv($socket));
    }

    return $clients;
}

/** @param list<Redis> $clients */
function combined(array $clients, ?object $strategy = null, float $ttl = 300.0): CombinedStore
{
    $stores = array_map(fn (Redis $redis) => new DlockStore($redis, $ttl), $clients);

    return new CombinedStore($stores, $strategy ?? new ConsensusStrategy());
}

/** Returns on how many of the three servers a lock is held. */
function holders(string $name): int
{
    return array_sum(array_map(fn (Redis $redis) => $redis->exists($name), three()));
}

/** Returns how many requests wait for a lock. */
function waiters(string $name): int
{
    $info = connected()->rawCommand('DLOCK.INFO', $name);

    return $info ? $info[array_search('waiters', $info, true) + 1] : 0;
}

/** Returns how many requests the server has granted. */
function grants(): int
{
    preg_match('/^dlock_grants:(\d+)/m', connected()->rawCommand('INFO', 'dlock'), $found);

    return (int) $found[1];
}

$tests = [
    'a lock has one owner at a time, and a greater token each time' => function (string $name) {
        [$one, $other] = [new LockFactory(store()), new LockFactory(store())];
        $key = new Key($name);
        $lock = $one->createLockFromKey($key);
        check($lock->acquire() && $lock->isAcquired(), 'the lock is acquired');
        $first = DlockStore::fencingToken($key);
        check(!$other->createLock($name)->acquire(), 'the other lock object is refused');
        $lock->release();
        check(!$lock->isAcquired(), 'the lock is released');
        $next = new Key($name);
        $second = $other->createLockFromKey($next);
        check($second->acquire(), 'the other lock object gets the lock');
        check(DlockStore::fencingToken($next) > $first, 'the second token is greater');
        check(!$lock->isAcquired(), 'the first one does not claim it');
    },
    'a blocking acquisition waits in the queue of the server' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 60);
        $lock->acquire();
        $waiting = elsewhere(fn () => (new LockFactory(store()))->createLock($name, 60)->acquire(true));
        until('the request waits', fn () => 1 === waiters($name));
        $lock->release();
        check(succeeds($waiting), 'the waiting process gets the lock');
    },
    'a wait outlives the read timeout of the client, and leaves it as it was' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 1);
        connected()->rawCommand('DLOCK.ACQUIRE', $name, 'somebody', 'PX', 2500);
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name, 30);
        $began = microtime(true);
        check($lock->acquire(true), 'the lock is acquired');
        check(microtime(true) - $began > 2, 'the wait is longer than the read timeout');
        check(1.0 === (float) $redis->getReadTimeout(), 'the timeout is the same');
        check($lock->getRemainingLifetime() > 29, 'the lock has its whole lease');
    },
    'the longest wait ends a blocking acquisition' => function (string $name) {
        connected()->rawCommand('DLOCK.ACQUIRE', $name, 'somebody');
        $began = microtime(true);
        $lock = (new LockFactory(store(longestWait: 0.5)))->createLock($name);
        throws(LockConflictedException::class, fn () => $lock->acquire(true));
        check(microtime(true) - $began < 5 && microtime(true) - $began >= 0.49, 'the wait ends after 0.5 s');
        check(0 === waiters($name), 'the request has left the queue');
    },
    'refreshing sets the lease, and a lock that is lost is reported' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 2);
        $lock->acquire();
        check(connected()->pttl($name) <= 2000, 'its lease is the TTL');
        $lock->refresh(60);
        check(connected()->pttl($name) > 50000 && $lock->getRemainingLifetime() > 50, 'the lock is refreshed');
        connected()->del($name);
        throws(LockConflictedException::class, fn () => $lock->refresh());
        check(!$lock->isAcquired(), 'the lock is lost');
        check($lock->acquire(), 'the lock can be acquired again');
    },
    'a refresh that a cap cuts claims only the time up to the cap' => function (string $name) {
        connected()->config('SET', 'dlock.max-hold', '3000');
        $lock = (new LockFactory(store(2.0)))->createLock($name, 2);
        $lock->acquire();
        $lock->refresh(60);
        $left = $lock->getRemainingLifetime();
        connected()->config('SET', 'dlock.max-hold', '0');
        check($left > 1 && $left <= 3, "1 to 3 s are left, and not $left");
    },
    'a reader that becomes the writer, or the other way round, ends at the cap of its first hold' => function (string $name) {
        connected()->config('SET', 'dlock.max-hold', '3000');
        $store = store(2.0);
        $keys = [];
        foreach ([['saveRead', 'save'], ['saveRead', 'waitAndSave'], ['save', 'saveRead'], ['save', 'waitAndSaveRead']] as $modes) {
            $store->{$modes[0]}($key = new Key("$name:".implode(':', $modes)));
            $keys[] = [$key, $modes[1]];
        }
        usleep(1500000);
        $wrong = [];
        foreach ($keys as [$key, $mode]) {
            $key->resetLifetime(); // as Symfony's Lock does
            $store->$mode($key);
            [$server, $claimed] = [connected()->pttl((string) $key), $key->getRemainingLifetime()];
            $claimed <= $server / 1000 || $wrong[] = "$key: $claimed s of $server ms";
        }
        connected()->config('SET', 'dlock.max-hold', '0');
        check([] === $wrong, 'no more is claimed than there is: '.implode(', ', $wrong));
    },
    'a reader that is not let in as the writer claims no more time than before' => function (string $name) {
        $factory = new LockFactory(store(20.0));
        [$lock, $other] = [$factory->createLock($name, 20), $factory->createLock($name, 20)];
        check($lock->acquireRead() && $other->acquireRead(), 'two readers share the lock');
        usleep(500000);
        check(!$lock->acquire(), 'the first reader is not the writer');
        [$server, $claimed] = [connected()->pttl($name), $lock->getRemainingLifetime()];
        check($lock->isAcquired() && $claimed <= $server / 1000, "$claimed s of $server ms");
    },
    'a lock ends with its lease' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 0.3);
        $lock->acquire();
        until('the lock has ended', fn () => $lock->isExpired() && !$lock->isAcquired());
        check((new LockFactory(store()))->createLock($name)->acquire(), 'another lock object gets the lock');
    },
    'readers share a lock, and one of them becomes the writer' => function (string $name) {
        $factory = new LockFactory(store());
        [$one, $other, $writer] = [$factory->createLock($name), $factory->createLock($name), $factory->createLock($name)];
        check($one->acquireRead() && $other->acquireRead(), 'two readers share the lock');
        check(!$writer->acquire(), 'no writer is let in');
        check(!$one->acquire(), 'the first reader is not the writer yet');
        check($one->isAcquired() || $one->acquireRead(), 'the first reader is still one');
        $other->release();
        check($one->acquire(), 'the first reader becomes the writer');
        check(!$other->acquireRead(), 'no other reader is let in');
        check($one->acquireRead() && $other->acquireRead(), 'both are readers again');
    },
    'a waiting reader is served after the writer' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name);
        $lock->acquire();
        $waiting = elsewhere(fn () => (new LockFactory(store()))->createLock($name)->acquireRead(true));
        until('the request waits', fn () => 1 === waiters($name));
        $lock->release();
        check(succeeds($waiting), 'the reader gets the lock');
    },
    'the end of the object releases the lock' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name);
        $lock->acquire();
        unset($lock);
        check(!connected()->exists($name), 'the lock is free');
    },
    'an unserialized key holds the lock in another store' => function (string $name) {
        $key = new Key($name);
        (new LockFactory(store()))->createLockFromKey($key, 60, false)->acquire();
        $lock = (new LockFactory(store()))->createLockFromKey(unserialize(serialize($key)), 60);
        check($lock->isAcquired(), 'the unserialized key holds the lock');
        $lock->release();
        check(!connected()->exists($name), 'the release frees the lock');
    },
    'the prefix of the client is put before the name' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_PREFIX, 'app:');
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name);
        $lock->acquire();
        check(1 === connected()->exists("app:$name"), 'the key has the prefix');
        $lock->release();
    },
    'a server without the module refuses loudly' => function (string $name) {
        $redis = new Redis();
        $redis->connect(getenv('DLOCK_TEST_PLAIN'));
        $store = new DlockStore($redis);
        $lock = (new LockFactory($store))->createLock($name);
        foreach ([fn () => $lock->acquire(), fn () => $lock->acquire(true), fn () => $lock->acquireRead()] as $acquire) {
            $error = throws(LockAcquiringException::class, $acquire);
            check(str_contains($error->getPrevious()->getMessage(), 'is the dlock module loaded'), 'the error says why');
        }
    },
    'several servers: an acquisition takes the lock on all, and a release frees it on all' => function (string $name) {
        foreach ([new ConsensusStrategy(), new UnanimousStrategy()] as $strategy) {
            $factory = new LockFactory(combined(three(), $strategy));
            [$one, $other] = [$factory->createLock($name, 30), $factory->createLock($name, 30)];
            check($one->acquire() && $one->isAcquired(), 'the lock is acquired');
            check(3 === holders($name), 'the lock is held on all servers');
            check(!$other->acquire() && !$other->isAcquired(), 'the other lock object is refused');
            $one->refresh(60);
            check(three()[2]->pttl($name) > 50000, 'the lock is refreshed on all servers');
            check($one->acquire(), 'the lock may be acquired again');
            $one->release();
            check(0 === holders($name) && !$one->isAcquired(), 'the lock is free on all servers');
            check($other->acquire(), 'the other lock object gets the lock');
            $other->release();
        }
    },
    'several servers: a minority that is lost, held or away does not matter' => function (string $name) {
        $factory = new LockFactory(combined(three()));
        $lock = $factory->createLock($name, 30);
        $lock->acquire();
        three()[1]->del($name);
        $lock->refresh(60);
        check($lock->isAcquired() && $lock->getRemainingLifetime() > 50, 'the lock goes on');
        $lock->release();
        check(0 === holders($name), 'the lock is free');
        three()[0]->rawCommand('DLOCK.ACQUIRE', $name, 'somebody');
        check($lock->acquire(), 'two of three are enough');
        $lock->release();
        check(1 === holders($name), 'the lock of the other owner is left');
        three()[1]->rawCommand('DLOCK.ACQUIRE', $name, 'somebody');
        check(!$lock->acquire(), 'one of three is not enough');
        check(!three()[2]->exists($name), 'the lock on the third server is given back');
        $clients = three();
        $clients[0]->close();
        $clients[0]->connect(getenv('DLOCK_TEST_PLAIN'));
        $lock = (new LockFactory(combined($clients)))->createLock($name.':2', 30);
        check($lock->acquire(), 'a server without the module is not counted');
        $lock->refresh(60);
        check($lock->getRemainingLifetime() > 50, 'a server without the module does not end the lock');
        $lock->release();
    },
    'several servers: an unserialized key holds the locks in another process, also as a reader that becomes the writer' => function (string $name) {
        $key = new Key($name);
        (new LockFactory(combined(three())))->createLockFromKey($key, 60, false)->acquireRead();
        $text = serialize($key);
        check(succeeds(elsewhere(function () use ($text, $name) {
            $lock = (new LockFactory(combined(three())))->createLockFromKey(unserialize($text), 60, false);
            $other = (new LockFactory(combined(three())))->createLock($name);
            check($lock->isAcquired() && $other->acquireRead() && !$lock->acquire(), 'the key reads, beside another one');
            $other->release();
            check($lock->acquire() && !$other->acquireRead(), 'the key becomes the writer');
            $lock->release();

            return 0 === holders($name);
        })), 'the other process has had and released the lock');
        check(null === DlockStore::fencingToken($key), 'tokens of several servers have no order');
    },
    'a forked process has no part in the locks of its parent, and ends none' => function (string $name) {
        $factory = new LockFactory(store());
        $several = new LockFactory(combined(three()));
        $locks = [$factory->createLock($name, 60), $factory->createLock("$name:r", 60), $several->createLock("$name:s", 60)];
        check($locks[0]->acquire() && $locks[1]->acquireRead() && $locks[2]->acquire(), 'all locks are acquired');
        check(succeeds(elsewhere(function () use (&$locks) {
            foreach ($locks as $lock) {
                check(!$lock->isAcquired(), 'the child claims nothing');
                throws(Exception::class, fn () => $lock->refresh(60));
                $lock->release();
            }
            check(!$locks[0]->acquire() && !$locks[2]->acquire(), 'the child is refused like any other process');
            $locks = $lock = null; // Runs their destructors.

            return true;
        })), 'the child ends');
        foreach ($locks as $lock) {
            check($lock->isAcquired(), 'the parent has the lock');
            $lock->release();
        }
        check([0, 0, 0] === [holders($name), holders("$name:r"), holders("$name:s")], 'the parent releases them');
    },
    'a signal handler that throws during a wait leaves no lock behind' => fn (string $name) => interrupted($name, 'connected'),
    'two keys of one name exclude each other, also in one store, and other names are free' => function (string $name) {
        $store = store();
        $keys = [new Key($name), new Key($name), new Key("$name:b")];
        [$a, $b, $c] = array_map(fn (Key $key) => (new LockFactory($store))->createLockFromKey($key, 30), $keys);
        check($a->acquire() && !$b->acquire() && $c->acquire(), 'one key of each name is granted');
        $b->release();
        check($a->isAcquired() && $c->isAcquired(), 'the release by the refused key changes no other');
    },
    'an unserialized key holds the lock in a store that has another address of the server' => function (string $name) {
        $key = new Key($name);
        (new LockFactory(store()))->createLockFromKey($key, 60, false)->acquire();
        $redis = new Redis();
        $redis->connect('localhost', (int) getenv('DLOCK_TEST_PORT'));
        $lock = (new LockFactory(new DlockStore($redis)))->createLockFromKey(unserialize(serialize($key)), 60, false);
        check($lock->isAcquired(), 'the unserialized key holds the lock');
        $lock->refresh(100);
        check($lock->acquire(), 'the lock can be acquired again');
        $lock->release();
        check(!connected()->exists($name), 'the release frees the lock');
    },
    'the owner says which process it is' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name);
        $lock->acquire();
        $info = connected()->rawCommand('DLOCK.INFO', $name, 'FULL');
        $owner = $info[array_search('holds', $info, true) + 1][0][1];
        $isNamed = str_contains($owner, ':'.getmypid().':') && str_starts_with($owner, substr(gethostname(), 0, 8));
        check($isNamed, "the owner has the host and the process: $owner");
        check(strlen($owner) <= 64, 'the owner has 64 bytes at most');
    },
    'a key that another kind of lock has counts as held' => function (string $name) {
        $old = new LockFactory(new RedisStore(connected()));
        foreach ([fn () => connected()->set($name, 'text', ['nx', 'px' => 60000]), fn () => $old->createLock($name, 60, false)->acquire()] as $holds) {
            $holds();
            $lock = (new LockFactory(store()))->createLock($name);
            check(!$lock->acquire() && !$lock->acquireRead() && !$lock->isAcquired(), 'the lock is refused');
            $limited = (new LockFactory(store(longestWait: 0.3)))->createLock($name);
            $began = microtime(true);
            throws(LockConflictedException::class, fn () => $limited->acquire(true));
            check(microtime(true) - $began >= 0.29, 'the lock is refused after the longest wait');
            check(0 === connected()->exists("$name:begun"), 'no process has begun');
            $waiting = elsewhere(function () use ($name) {
                connected()->set("$name:begun", '1', ['EX' => 60]);

                return (new LockFactory(store()))->createLock($name, 60)->acquire(true);
            });
            until('the process has begun', fn () => connected()->exists("$name:begun"));
            usleep(150000); // A wait for such a key asks every 100 ms: it is refused at least once.
            connected()->del($name);
            check(succeeds($waiting), 'the waiting process gets the lock');
            connected()->del($name, "$name:begun");
        }
    },
    'a lock whose key another program has overwritten is lost' => function (string $name) {
        $lock = (new LockFactory(store()))->createLock($name, 60);
        $lock->acquire();
        connected()->set($name, 'text');
        check(!$lock->isAcquired(), 'the lock is lost');
        throws(LockConflictedException::class, fn () => $lock->refresh());
        check($lock->isExpired(), 'the lock does not count as held');
        $lock->release();
        check('text' === connected()->get($name), 'the other key is as it was');
        connected()->del($name);
        check($lock->acquire(), 'the lock can be acquired again');
    },
    'a client in a transaction or a pipeline is refused' => function (string $name) {
        foreach ([Redis::MULTI, Redis::PIPELINE] as $mode) {
            $redis = connected();
            $store = new DlockStore($redis);
            $held = (new LockFactory($store))->createLock("$name:held", 60, false);
            $held->acquire();
            $redis->multi($mode);
            $lock = (new LockFactory($store))->createLock($name);
            foreach ([fn () => $lock->acquire(), fn () => $lock->acquire(true), fn () => $held->refresh()] as $call) {
                $error = throws(LockAcquiringException::class, $call);
                check(str_contains($error->getPrevious()->getMessage(), 'multi()'), 'the error says why');
            }
            throws(LockReleasingException::class, fn () => $held->release());
            $redis->exec();
            check(!connected()->exists($name), 'nothing was queued');
            $held->release();
        }
    },
    'a wait goes on if its grant has lapsed before the client reads it' => function (string $name) {
        $mine = (new LockFactory(store()))->createLock($name, 60);
        $mine->acquire();
        $waiting = elsewhere(function () use ($name) {
            $lock = (new LockFactory(store(1.0)))->createLock($name);

            // The key exists while $mine holds the lock for the second time: the first grant must not count.
            return $lock->acquire(true) && $lock->isAcquired() && 0 === connected()->exists("$name:inside");
        });
        until('the request waits', fn () => 1 === waiters($name));
        posix_kill($waiting, SIGSTOP);
        $mine->release();
        until('the lease of the grant has ended', fn () => !connected()->exists($name));
        connected()->set("$name:inside", '1', ['EX' => 60]);
        $mine->acquire();
        posix_kill($waiting, SIGCONT);
        until('the request waits again', fn () => 1 === waiters($name));
        connected()->del("$name:inside");
        $mine->release();
        check(succeeds($waiting), 'the process gets the lock after that');
    },
    'a refresh that got no answer promises no more than before' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $lock = (new LockFactory(new DlockStore($redis, 5)))->createLock($name, 5);
        $lock->acquire();
        connected()->rawCommand('CLIENT', 'PAUSE', 1000, 'WRITE');
        throws(LockAcquiringException::class, fn () => $lock->refresh(60));
        check($lock->getRemainingLifetime() < 5, 'no more is claimed than before');
        connected()->del($name); // The call returns when the pause is over.
    },
    'after a refresh without an answer, the lock claims no more than the lease that the server may still set' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $lock = (new LockFactory(new DlockStore($redis, 60)))->createLock($name, 60);
        $lock->acquire();
        connected()->rawCommand('CLIENT', 'PAUSE', 600, 'WRITE');
        throws(LockAcquiringException::class, fn () => $lock->refresh(20));
        check($lock->getRemainingLifetime() <= 20, 'no more is claimed, as the refresh may have been executed');
        connected()->set("$name:after", '', ['EX' => 60]); // The call returns when the pause is over.
        $lock->refresh(60);
        check($lock->getRemainingLifetime() <= 20, 'no more is claimed, as the first refresh may still be executed');
        $lock->release();
    },
    'the end of a lock whose release got no answer is quiet' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $lock = (new LockFactory(new DlockStore($redis, 60)))->createLock($name, 60);
        $lock->acquire();
        connected()->rawCommand('CLIENT', 'PAUSE', 1200, 'ALL');
        throws(LockReleasingException::class, fn () => $lock->release());
        check(!$lock->isAcquired(), 'nothing is claimed any more');
        unset($lock); // An exception of its destructor would end the program.
        connected()->del($name); // The call returns when the pause is over.
    },
    'without an answer a lock is not claimed, and its end is quiet' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $lock = (new LockFactory(new DlockStore($redis, 60)))->createLock($name, 60);
        $lock->acquire();
        connected()->rawCommand('CLIENT', 'PAUSE', 1500, 'ALL');
        check(!$lock->isAcquired(), 'nothing is claimed');
        unset($lock); // An exception of its destructor would end the program.
        connected()->del($name); // The call returns when the pause is over.
    },
    'a server that is a replica now, or pauses writes: nothing is claimed, and the end of a lock is quiet' => function (string $name) {
        [$server, $port] = started();
        $operator = reached($port);
        $troubles = [
            'replica' => [fn () => $operator->rawCommand('REPLICAOF', '127.0.0.1', 1), fn () => $operator->rawCommand('REPLICAOF', 'NO', 'ONE')],
            'pause' => [fn () => $operator->rawCommand('CLIENT', 'PAUSE', 60000, 'WRITE'), fn () => $operator->rawCommand('CLIENT', 'UNPAUSE')],
        ];
        foreach (clients($port) as $of => $redis) {
            foreach ($troubles as $what => [$begin, $end]) {
                $locks = [];
                foreach (['untouched', 'refreshed', 'released'] as $how) {
                    $locks[$how] = (new LockFactory(new DlockStore($redis, 60)))->createLock("$name:$of:$what:$how", 60);
                    $locks[$how]->acquire();
                }
                $begin();
                throws(LockAcquiringException::class, fn () => $locks['refreshed']->refresh(60));
                throws(LockReleasingException::class, fn () => $locks['released']->release());
                throws(LockAcquiringException::class, fn () => (new LockFactory(new DlockStore($redis)))->createLock("$name:other")->acquire());
                foreach ($locks as $how => $lock) {
                    check(!$lock->isAcquired(), "$of, $what, $how: nothing is claimed");
                }
                // An exception of a destructor would end the program.
                unset($lock, $locks);
                $end();
            }
        }
        $lock = (new LockFactory(new DlockStore(reached($port), 60)))->createLock("$name:again", 60);
        check($lock->acquire() && $lock->isAcquired(), 'a primary grants another lock');
        proc_terminate($server, SIGKILL);
    },
    'a release without an answer is repeated, and the lock is claimed no more' => function (string $name) {
        foreach (['another call', 'the end of the store'] as $way) {
            $redis = connected();
            $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
            $store = new DlockStore($redis, 60);
            $key = new Key($name);
            $lock = (new LockFactory($store))->createLockFromKey($key, 60, false);
            $lock->acquire();
            connected()->rawCommand('CLIENT', 'PAUSE', 600, 'WRITE');
            throws(LockReleasingException::class, fn () => $lock->release());
            check($lock->isExpired(), 'the lock claims nothing');
            connected()->set("$name:after", '', ['EX' => 60]); // The call returns when the pause is over.
            check(1 === connected()->exists($name), 'nothing has released it');
            if ('another call' === $way) {
                (new LockFactory($store))->createLock("$name:other")->acquire();
            } else {
                unset($lock, $store);
            }
            check(0 === connected()->exists($name), "$way releases it");
        }
    },
    'a release without an answer is repeated by its own process only, and not within a transaction' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $store = new DlockStore($redis, 60);
        $lock = (new LockFactory($store))->createLock($name, 60, false);
        $lock->acquire();
        connected()->rawCommand('CLIENT', 'PAUSE', 600, 'WRITE');
        throws(LockReleasingException::class, fn () => $lock->release());
        connected()->set("$name:after", '', ['EX' => 60]); // The call returns when the pause is over.
        $redis->ping();
        $other = (new LockFactory($store))->createLock("$name:other");
        check(succeeds(elsewhere(function () use ($store) {
            $store->__destruct();

            return true;
        })), 'the other process ends');
        check(1 === connected()->exists($name), 'the other process has released nothing');
        $redis->multi();
        throws(LockAcquiringException::class, fn () => $other->acquire());
        $redis->discard();
        $other->acquire();
        check(0 === connected()->exists($name), 'the next call of its own process releases it');
    },
    'a lock that is acquired again while its release may still be executed gets a new token' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $store = new DlockStore($redis, 60);
        $key = new Key($name);
        $lock = (new LockFactory($store))->createLockFromKey($key, 60);
        $lock->acquire();
        $first = DlockStore::fencingToken($key);
        connected()->rawCommand('CLIENT', 'PAUSE', 600, 'WRITE');
        throws(LockReleasingException::class, fn () => $lock->release());
        connected()->set("$name:after", '', ['EX' => 60]); // The call returns when the pause is over.
        throws(LockConflictedException::class, fn () => $lock->refresh());
        check($lock->acquire() && !$lock->isExpired(), 'the lock is acquired');
        check(DlockStore::fencingToken($key) > $first, 'the token is a new one');
        $lock->release();
        check(0 === connected()->exists($name), 'the lock is released');
    },
    'a release on a server without the module is an error' => function (string $name) {
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
        connected()->set("$name:after", '', ['EX' => 60]); // The call returns when the pause is over.
        until('the late grant is released', fn () => !connected()->exists($name));
        check($lock->acquire() && $lock->isAcquired(), 'the next acquisition gets its own reply');
        $lock->release();
    },
    'a client that lost a reply stays in its database' => function (string $name) {
        foreach (['the next lock', 'the next command of the program'] as $next) {
            $redis = connected();
            $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
            $redis->select(5);
            $lock = (new LockFactory(new DlockStore($redis)))->createLock($name);
            $there = connected();
            $there->select(5);
            $there->rawCommand('CLIENT', 'PAUSE', 1000, 'WRITE');
            throws(LockAcquiringException::class, fn () => $lock->acquire());
            $there->set("$name:after", '', ['EX' => 60]); // The call returns when the pause is over.
            until('the late grant is released', fn () => !$there->exists($name));
            if ('the next lock' === $next) {
                check($lock->acquire(), 'the lock is granted');
                check(1 === $there->exists($name) && 0 === connected()->exists($name), 'the lock is in the database of the client');
                $lock->release();
            }
            check(str_contains($redis->rawCommand('CLIENT', 'INFO'), ' db=5 '), "$next: the client is in its database");
        }
    },
    'a client that lost the reply to a command of the program locks in its database' => function (string $name) {
        $redis = connected();
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
        $redis->select(5);
        $there = connected();
        $there->select(5);
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name);
        connected()->rawCommand('CLIENT', 'PAUSE', 1000, 'ALL');
        throws(RedisException::class, fn () => $redis->get($name));
        $there->ping(); // The call returns when the pause is over.
        check($lock->acquire(), 'the lock is granted');
        check(1 === $there->exists($name) && 0 === connected()->exists($name), 'the lock is in the database of the client');
        $lock->release();
        check(0 === $there->exists($name), 'the lock is released there');
    },
    'a client whose server is down gets the exceptions of Symfony, and may connect again' => function (string $name) {
        [$server, $port] = started();
        $redis = new Redis();
        check(reaches($redis, $port), 'the server is there');
        $redis->select(5);
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name, 300, false);
        check($lock->acquire(), 'the lock is granted');
        proc_terminate($server, SIGKILL);
        until('the server is gone', fn () => !proc_get_status($server)['running']);
        throws(LockReleasingException::class, fn () => $lock->release());
        $other = (new LockFactory(new DlockStore($redis)))->createLock($name, 300, false);
        throws(LockAcquiringException::class, fn () => $other->acquire());
        [$server] = started($port);
        $there = new Redis();
        check(reaches($there, $port) && reaches($redis, $port) && $redis->select(6) && $there->select(6), 'the program connects again');
        check((new LockFactory(new DlockStore($redis)))->createLock($name, 300, false)->acquire(), 'the lock is granted again');
        check(1 === $there->exists($name), 'the lock is in the database that the program has selected last');
        proc_terminate($server, SIGKILL);
    },
    'a server that hangs: no call takes longer than the limit of the client' => function (string $name) {
        // In seconds: the client waits 2 s for a reply. An acquisition waits 1 s at most, and 5 s for a late reply.
        foreach ([false, true] as $isCluster) {
            $make = fn (int $database, bool $holds, callable $task) => function (int $port, int $number) use ($isCluster, $database, $holds, $task, $name) {
                $redis = $isCluster ? new RedisCluster(null, ["127.0.0.1:$port"], 2, 2) : new Redis();
                if (!$isCluster) {
                    $redis->connect('127.0.0.1', $port);
                    $redis->setOption(Redis::OPT_READ_TIMEOUT, 2);
                    $redis->select($database);
                }
                $lock = (new LockFactory(new DlockStore($redis, 60, 1)))->createLock("$name:$number", 60, false);
                $lock->acquire();
                $holds || $lock->release();

                return fn () => $task($lock);
            };
            $tasks = [];
            foreach ($isCluster ? [0] : [0, 5] as $database) {
                $tasks[] = [$make($database, false, fn ($lock) => $lock->acquire()), 2];
                $tasks[] = [$make($database, true, fn ($lock) => $lock->refresh()), 2];
                $tasks[] = [$make($database, true, fn ($lock) => $lock->isAcquired() ?: throw new Exception('nothing is claimed')), 2];
                $tasks[] = [$make($database, true, fn ($lock) => $lock->release()), 2];
                $tasks[] = [$make($database, false, fn ($lock) => $lock->acquire(true)), 6];
            }
            hanging("$name:".(int) $isCluster, $tasks, $isCluster);
        }
    },
    'a wait in a cluster outlives the read timeout of the client' => function (string $name) {
        [$host, $port] = explode(':', getenv('DLOCK_TEST_CLUSTER'));
        $redis = new RedisCluster(null, ["$host:$port"], 2, 1);
        $redis->rawCommand($name, 'DLOCK.ACQUIRE', $name, 'somebody', 'PX', 1800);
        $lock = (new LockFactory(new DlockStore($redis)))->createLock($name, 30, false);
        check($lock->acquire(true), 'the lock is acquired');
        $lock->release();
    },
    'a store works over a client of a cluster, with and without a prefix' => function (string $name) {
        [$host, $port] = explode(':', getenv('DLOCK_TEST_CLUSTER'));
        foreach (['', 'app:'] as $prefix) {
            $cluster = fn () => new RedisCluster(null, ["$host:$port"], 2, 2);
            $connect = function () use ($cluster, $prefix) {
                $redis = $cluster();
                $redis->setOption(Redis::OPT_PREFIX, $prefix);

                return $redis;
            };
            $factory = fn (?float $longest = null) => new LockFactory(new DlockStore($connect(), 300, $longest));
            $key = new Key($name);
            $lock = $factory()->createLockFromKey($key, 60, false);
            check($lock->acquire() && $lock->isAcquired(), 'the lock is acquired');
            check(1 === $cluster()->exists($prefix.$name), 'the key has the prefix');
            check(!$factory()->createLock($name)->acquire(), 'the other lock object is refused');
            $limited = $factory(0.4)->createLock($name);
            $began = microtime(true);
            throws(LockConflictedException::class, fn () => $limited->acquire(true));
            check(microtime(true) - $began >= 0.39, 'the lock is refused after the longest wait');
            $lock->refresh(100);
            check($lock->getRemainingLifetime() > 90 && DlockStore::fencingToken($key) > 0, 'the lock is refreshed');
            $there = $factory()->createLockFromKey(unserialize(serialize($key)), 60, false);
            check($there->isAcquired(), 'the unserialized key holds the lock');
            $there->release();
            check(!$cluster()->exists($prefix.$name), 'the lock is free');
            $cluster()->set($prefix.$name, 'text');
            check(!$lock->acquire(), 'a key of another type counts as held');
            $cluster()->del($prefix.$name);
        }
    },
    'a refresh with a lease that is too short to rely on ends the lock' => function (string $name) {
        $key = new Key($name);
        store()->save($key);
        throws(LockExpiredException::class, fn () => store()->putOffExpiration($key, 1e-6));
        check($key->isExpired(), 'the key claims nothing');
        store()->save(new Key($name)); // Throws if the lock is not free.
        throws(InvalidTtlException::class, fn () => store()->putOffExpiration($key, 0));
    },
    'a request without an answer that arrives late leaves no hold' => function (string $name) {
        foreach (['phpredis', 'predis'] as $kind) {
            $server = getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT');
            [$pid, $port] = failing([['WLOCK', 'half a second later']], $server);
            $client = clients($port)[$kind] ?? null;
            if (null !== $client) {
                $store = new DlockStore($client);
                throws(Exception::class, fn () => $store->save(new Key("$name:$kind")));
                $before = grants();
                usleep(600000);
                $store->save(new Key("$name:$kind:other"));
                check(2 === grants() - $before, "$kind: the request has arrived");
                check(!connected()->exists("$name:$kind"), "$kind: it leaves no hold");
            }
            posix_kill($pid, \SIGKILL);
            pcntl_waitpid($pid, $status);
        }
    },
    'the release of an upgrade that got no answer does not end the next one' => function (string $name) {
        $server = getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT');
        $releases = ['lost' => [['RELEASE', ''], ['RELEASE', '']], 'late' => [['RELEASE', 'WLOCK']]];
        foreach ($releases as $fault => $faults) {
            [$pid, $port] = failing([['WLOCK', ''], ...$faults], $server);
            $store = new DlockStore(clients($port)['phpredis']);
            $store->saveRead($key = new Key("$name:$fault"));
            throws(Exception::class, fn () => $store->save($key));
            until("$fault: the upgrade", function () use ($store, $key) {
                try {
                    $store->save($key);

                    return true;
                } catch (RedisException|LockStorageException) {
                    return false;
                }
            });
            $store->putOffExpiration($key, 300); // The store sends what it owes with each call.
            $store->putOffExpiration($key, 300);
            check($store->exists($key), "$fault: the lock is still held");
            posix_kill($pid, \SIGKILL);
            pcntl_waitpid($pid, $status);
        }
    },
    'the release of an upgrade that got no answer does not end that of another process' => function (string $name) {
        $server = getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT');
        // The other process reaches the server at another address than the relay's, except when the server pauses.
        $faults = ['answered' => [['WLOCK', '']], 'lost' => [['WLOCK', ''], ['RELEASE', '']]];
        $faults += ['late' => [['WLOCK', 'later']], 'paused' => []];
        foreach ($faults as $fault => $list) {
            [$pid, $port] = failing($list, $server);
            $port = 'paused' === $fault ? (int) getenv('DLOCK_TEST_PORT') : $port;
            $store = new DlockStore(clients($port)['phpredis'], 2.0);
            $store->saveRead($key = new Key("$name:$fault"));
            $store->putOffExpiration($key, 60);
            'paused' === $fault && connected()->rawCommand('CLIENT', 'PAUSE', '600', 'WRITE');
            throws(Exception::class, fn () => $store->save($key));
            connected()->set("$name:$fault:after", '', ['EX' => 60]); // The call returns when the pause is over.
            check($store->exists($key), "$fault: it is still a reader");
            $copy = unserialize(serialize($key));
            $other = store(2.0);
            until("$fault: the other process becomes the writer", function () use ($other, $copy) {
                try {
                    $copy->resetLifetime(); // as Symfony's Lock does
                    $other->save($copy);

                    return true;
                } catch (LockStorageException) {
                    return false;
                }
            });
            $other->putOffExpiration($copy, 60);
            $store->save(new Key("$name:$fault:next")); // The store sends what it owes.
            check($other->exists($copy), "$fault: the lock is held");
            $store = null;
            check($other->exists($copy), "$fault: the lock is held after the end of the store");
            $other->delete($copy);
            posix_kill($pid, \SIGKILL);
            pcntl_waitpid($pid, $status);
        }
    },
    'a key goes on to another process when a request of its owner has its answer' => function (string $name) {
        $store = store();
        $store->saveRead($key = new Key($name));
        $store->saveRead($reader = new Key($name));
        throws(LockConflictedException::class, fn () => $store->save($key));
        $store->delete($reader);
        store()->save($copy = unserialize(serialize($key)));
        store()->saveRead($copy = unserialize(serialize($copy)));
        store()->save($copy = unserialize(serialize($copy)));
        check(store()->exists($copy), 'it is the writer');
    },
    'a signal handler that uses the store whose call it interrupts does not end its lock' => function (string $name) {
        $calls = ['save' => 'WLOCK', 'waitAndSave' => 'WLOCK', 'saveRead' => 'RLOCK', 'waitAndSaveRead' => 'RLOCK'];
        foreach ($calls as $call => $command) {
            $store = new DlockStore(signaled("DLOCK.$command", function () use ($name, $call, &$store) {
                $store->save($other = new Key("$name:$call:other"));
                $store->putOffExpiration($other, 60);
                $store->delete($other);
            }));
            $store->$call($key = new Key("$name:$call"));
            check(connected()->exists((string) $key) && $store->exists($key), "$call: the lock is held");
            $store->delete($key);
            check(!connected()->exists((string) $key), "$call: the lock is free");
        }
    },
    'invalid arguments are refused' => function (string $name) {
        throws(InvalidTtlException::class, fn () => store(0));
        throws(InvalidTtlException::class, fn () => store(0.002));
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
