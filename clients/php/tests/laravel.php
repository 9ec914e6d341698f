<?php

/**
 * The locks of Laravel's cache, over phpredis and Predis, on the server of DLOCK_TEST_HOST and DLOCK_TEST_PORT. The
 * code of Laravel is that of Debian's packages. The server at the socket DLOCK_TEST_PLAIN has no module. A cluster of
 * one node is at DLOCK_TEST_CLUSTER.
 */

declare(strict_types=1);

use Dlock\DlockStore;
use Dlock\Driver;
use Dlock\Laravel\DlockLock;
use Dlock\Laravel\DlockServiceProvider;
use Dlock\ServerError;
use Illuminate\Bus\UniqueLock;
use Illuminate\Cache\CacheManager;
use Illuminate\Cache\Repository;
use Illuminate\Console\Scheduling\CacheSchedulingMutex;
use Illuminate\Console\Scheduling\CacheEventMutex;
use Illuminate\Console\Scheduling\Event;
use Illuminate\Container\Container;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Queue\Middleware\WithoutOverlapping;
use Illuminate\Redis\RedisManager;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\CombinedStore;
use Symfony\Component\Lock\Strategy\UnanimousStrategy;

error_reporting(\E_ALL & ~\E_DEPRECATED); // Laravel 8 is older than PHP 8.2.
foreach (['Cache', 'Redis', 'Queue', 'Bus', 'Console'] as $part) {
    require "Illuminate/$part/autoload.php";
}
require 'Predis/autoload.php';
require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/kit.php';
require __DIR__.'/../src/DlockStore.php';
foreach (['DlockLock', 'DlockCacheStore', 'DlockServiceProvider'] as $part) {
    require __DIR__."/../src/Laravel/$part.php";
}

/** The kind of client with which the tests run now. */
$client = 'phpredis';

/** An application, as far as the cache needs one. */
function application(array $options = []): Container
{
    global $client;
    $server = ['host' => getenv('DLOCK_TEST_HOST'), 'port' => (int) getenv('DLOCK_TEST_PORT'), 'database' => 0];
    $plain = 'phpredis' === $client ? ['host' => getenv('DLOCK_TEST_PLAIN'), 'port' => 0] : ['scheme' => 'unix', 'path' => getenv('DLOCK_TEST_PLAIN')];
    [$host, $port] = explode(':', getenv('DLOCK_TEST_CLUSTER'));
    $databases = [
        'options' => ['prefix' => 'app:'] + $options,
        'default' => $server,
        'other' => ['database' => 6] + $server,
        'plain' => $plain,
        'clusters' => ['nodes' => [['host' => $host, 'port' => (int) $port]], 'options' => ['cluster' => 'redis']],
    ];
    $app = new Container();
    $app->instance('config', [
        'cache.default' => 'dlock',
        'cache.prefix' => 'cache',
        'cache.stores.dlock' => ['driver' => 'dlock', 'connection' => 'default'],
        'cache.stores.other' => ['driver' => 'dlock', 'connection' => 'default', 'lock_connection' => 'other'],
        'cache.stores.plain' => ['driver' => 'dlock', 'connection' => 'plain'],
        'cache.stores.nodes' => ['driver' => 'dlock', 'connection' => 'nodes'],
        'cache.stores.redis' => ['driver' => 'redis', 'connection' => 'default'],
    ]);
    $app->instance('redis', new RedisManager($app, $client, $databases));
    $app->instance('cache', new CacheManager($app));
    $app->instance(Illuminate\Contracts\Cache\Repository::class, $app['cache']);
    (new DlockServiceProvider($app))->boot();
    Container::setInstance($app);

    return $app;
}

function cache(?string $store = null): Repository
{
    return application()['cache']->store($store);
}

/** A field of what the server knows about a lock. */
function info(string $name, string $field): mixed
{
    return Driver::field(connected()->rawCommand('DLOCK.INFO', "app:cache:$name"), $field);
}

final class UniqueJob
{
    public int $uniqueFor = 60;

    public function __construct(private string $id)
    {
    }

    public function uniqueId(): string
    {
        return $this->id;
    }
}

$tests = [
    'a lock has one owner at a time, and a greater token each time' => function (string $name) {
        [$one, $other] = [cache()->lock($name, 10), cache()->lock($name, 10)];
        check($one instanceof DlockLock && $one->get(), 'it is acquired');
        check(!$other->get() && !$one->get(), 'nobody gets it twice, not even its owner');
        check(info($name, 'token') === $one->fencingToken(), 'with the token of the server');
        check($one->release() && !$one->release(), 'it is released once');
        check($other->get() && $other->fencingToken() > 0, 'the other one has it');
        check(!$one->release() && $other->release(), 'it belongs to the other one');
    },
    'a callback has the lock, and its exception wins' => function (string $name) {
        $lock = cache()->lock($name, 10);
        check('done' === $lock->get(fn () => info($name, 'holders') ? 'done' : 'not'), 'it has the lock');
        throws(DomainException::class, fn () => $lock->block(1, function () use ($name) {
            connected()->del("app:cache:$name");
            throw new DomainException();
        }));
        check(null === info($name, 'mode'), 'it is free');
    },
    'block waits in the queue of the server, first come, first served' => function (string $name) {
        $lock = cache()->lock($name, 60);
        $lock->get();
        $waiting = [];
        foreach ([1, 2, 3] as $number) {
            $waiting[] = elsewhere(fn () => cache()->lock($name, 60)->block(30, fn () => connected()->rPush("$name:order", $number)) > 0);
            until("$number wait", fn () => info($name, 'waiters') === $number);
        }
        $lock->release();
        foreach ($waiting as $pid) {
            check(succeeds($pid), 'it was granted');
        }
        check(['1', '2', '3'] === connected()->lRange("$name:order", 0, -1), 'in their order');
    },
    'block ends with its time' => function (string $name) {
        $held = cache()->lock($name, 60);
        $held->get();
        foreach ([0, 1] as $seconds) {
            $began = microtime(true);
            throws(LockTimeoutException::class, fn () => cache()->lock($name, 5)->block($seconds));
            check(abs(microtime(true) - $began - $seconds) < 0.9, "after $seconds s");
        }
        check(0 === info($name, 'waiters') && $held->release(), 'the queue is empty');
    },
    'a grant that is older than a third of its lease is confirmed' => function (string $name) {
        $held = cache()->lock($name, 60);
        $held->get();
        $pid = elsewhere(function () use ($name) {
            $lock = cache()->lock($name, 2);

            return $lock->block(10) && info($name, 'ttl') > 1900 && $lock->release();
        });
        until('it waits', fn () => 1 === info($name, 'waiters'));
        usleep(800000);
        $held->release();
        check(succeeds($pid), 'its lease is a new one');
    },
    'another process restores, refreshes and releases a lock by its owner' => function (string $name) {
        $lock = cache()->lock($name, 2);
        $lock->get();
        $owner = $lock->owner();
        check(succeeds(elsewhere(function () use ($name, $owner) {
            $restored = cache()->restoreLock($name, $owner);

            return $restored->refresh(60) && info($name, 'ttl') > 59000 && $restored->release();
        })), 'it is released');
        check(!$lock->refresh() && !$lock->release(), 'it is gone');
        check(!cache()->restoreLock($name, 'somebody')->release(), 'nobody else releases it');
    },
    'a process that the callback has forked does not release the lock' => function (string $name) {
        $pid = null;
        foreach ([fn ($callback) => cache()->lock($name, 60)->get($callback),
            fn ($callback) => cache()->lock($name, 60)->block(1, $callback)] as $under) {
            $under(function () use ($name, &$pid) {
                $pid = pcntl_fork();
                if ($pid > 0) {
                    check(succeeds($pid), 'the child ends');
                    check(1 === info($name, 'holders'), 'the parent has the lock');
                }
            });
            if (0 === $pid) {
                posix_kill(getmypid(), \SIGTERM); // without destructors of the parent's objects
            }
            check(null === info($name, 'holders'), 'the parent has released it');
        }
    },
    'a lock is released by force, and the next is granted it' => function (string $name) {
        $lock = cache()->lock($name);
        $lock->get();
        check(info($name, 'ttl') > 31535990000, 'without an end: a year');
        $pid = elsewhere(fn () => cache()->lock($name, 5)->block(30));
        until('it waits', fn () => 1 === info($name, 'waiters'));
        cache()->lock($name)->forceRelease();
        check(succeeds($pid) && !$lock->release(), 'the other one has it');
    },
    'a lock of the driver redis is held, and waited for' => function (string $name) {
        $old = cache('redis')->lock($name, 60);
        check($old->get(), 'the old lock is acquired');
        $lock = cache()->lock($name, 10);
        check(!$lock->get() && !$lock->refresh() && !$lock->release(), 'it is held');
        throws(LockTimeoutException::class, fn () => $lock->block(1));
        $pid = elsewhere(fn () => cache()->lock($name, 10)->block(30));
        usleep(100000);
        check($old->release() && succeeds($pid), 'then it is granted');
        check(!cache('redis')->lock($name, 60)->get(), 'the old programs respect it');
    },
    'unique jobs, WithoutOverlapping and the scheduler use it' => function (string $name) {
        check((new UniqueLock(cache()))->acquire(new UniqueJob($name)), 'a unique job is queued');
        check(!(new UniqueLock(cache()))->acquire(new UniqueJob($name)), 'once');
        application();
        $job = new class() {
            public array $log = [];

            public function release($after): void
            {
                $this->log[] = "again after $after s";
            }
        };
        (new WithoutOverlapping($name))->handle($job, function ($job) use ($name) {
            $job->log[] = 'runs';
            (new WithoutOverlapping($name, 7))->handle($job, fn () => $job->log[] = 'overlaps');
        });
        check(['runs', 'again after 7 s'] === $job->log, 'jobs do not overlap');
        $app = application();
        $event = new Event(new CacheEventMutex($app['cache']), "command $name");
        $mutex = new CacheSchedulingMutex($app['cache']);
        check($mutex->create($event, new DateTime('2026-01-01')) && !$mutex->create($event, new DateTime('2026-01-01')), 'onOneServer');
    },
    'the locks are where lock_connection says' => function (string $name) {
        check(cache('other')->lock($name, 60)->get(), 'it is acquired');
        $redis = connected();
        check(!$redis->exists("app:cache:$name"), 'not in database 0');
        $redis->select(6);
        check(1 === $redis->exists("app:cache:$name"), 'in database 6, under its prefixes');
    },
    'a grant whose reply is lost is released' => function (string $name) {
        global $client;
        [$pid, $port] = losing('ACQUIRE', getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT'));
        $redis = 'phpredis' === $client ? new Redis() : new Predis\Client("tcp://127.0.0.1:$port");
        'phpredis' === $client ? $redis->connect('127.0.0.1', $port) : $redis->connect();
        $lock = new DlockLock(Driver::of($redis), "app:cache:$name", 60);
        $owner = $lock->owner();
        check(Driver::isUnanswered(throws(Exception::class, fn () => $lock->get())), 'the reply is lost');
        check(null === info($name, 'mode'), 'nobody has it');
        check($lock->owner() !== $owner, 'the next one is another owner');
        posix_kill($pid, \SIGKILL);
        succeeds($pid);
    },
    'a named owner acquires nothing that an earlier release would end' => function (string $name) {
        global $client;
        $faults = [['ACQUIRE', ''], ['RELEASE', ''], ['RELEASE', '']];
        [$pid, $port] = failing($faults, getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT'));
        $lock = new DlockLock(Driver::of(clients($port)[$client]), "app:cache:$name", 60, "$name:me");
        throws(Exception::class, fn () => $lock->get());
        until('it is acquired', function () use ($lock) {
            try {
                return $lock->get();
            } catch (Exception) {
                return false;
            }
        });
        check(!$lock->get(), 'the owner has it already');
        check(null !== info($name, 'mode'), 'it is still held');
        posix_kill($pid, \SIGKILL);
        succeeds($pid);
    },
    'no release without an answer ends a hold that its owner has through another object' => function (string $name) {
        global $client;
        $ends = fn (float $later) => fn (DlockLock &$lock) => [usleep((int) (1e6 * $later)), $lock = null];
        $again = fn (DlockLock &$lock) => [usleep(1100000), check(!$lock->get(), 'it is not granted'), $ends(0)($lock)];
        $get = fn (DlockLock $lock) => throws(Exception::class, fn () => $lock->get());
        $release = fn (DlockLock $lock) => $lock->get() && throws(Exception::class, fn () => $lock->release());
        $restored = fn (DlockLock $lock, DlockLock $other) => [
            $other->get(), throws(Exception::class, fn () => $lock->release()), $other->release()];
        $held = fn (DlockLock $lock, DlockLock $other) => $other->get() && $get($lock);
        // The faults, the call that gets no answer, and what the object does when its owner has the lock again.
        $cases = [
            'get' => [[['ACQUIRE', '']], $get, $ends(0)],
            'get, and its end comes later' => [[['ACQUIRE', '']], $get, $ends(1.1)],
            'get, and again' => [[['ACQUIRE', '']], $get, $again],
            'get and its release' => [[['ACQUIRE', ''], ['RELEASE', '']], $get, $ends(0)],
            'get, which the owner has already' => [[['ACQUIRE', '']], $held, $ends(0)],
            'get, late' => [[['ACQUIRE', 'later']], $get, $ends(0)],
            'release' => [[['RELEASE', '']], $release, $ends(0)],
            'release by an owner that is restored' => [[['RELEASE', '']], $restored, $ends(0)],
        ];
        foreach ($cases as $title => [$faults, $fails, $then]) {
            [$pid, $port] = failing($faults, getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT'));
            $locks = fn (object $redis) => new DlockLock(Driver::of($redis), "app:cache:$name:$title", 60, "$name:me");
            [$lock, $other] = [$locks(clients($port)[$client]), $locks(connected())];
            $fails($lock, $other);
            until("$title: the owner has the lock", fn () => null !== $other->fencingToken() || $other->get());
            $then($lock);
            check($other->refresh(), "$title: it still has the lock");
            posix_kill($pid, \SIGKILL);
            succeeds($pid);
        }
    },
    'a request of a named owner that arrives late leaves no hold' => function (string $name) {
        global $client;
        [$pid, $port] = failing([['ACQUIRE', 'later']], getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT'));
        $lock = new DlockLock(Driver::of($redis = clients($port)[$client]), "app:cache:$name", 60, "$name:me");
        throws(Exception::class, fn () => $lock->get());
        check(null === info($name, 'mode'), 'nobody has it');
        usleep(600000);
        $redis->ping(); // Before this command, the relay passes the request on.
        check(null !== info($name, 'mode'), 'the request has arrived');
        $lock = null;
        check(null === info($name, 'mode'), 'it leaves no hold');
        posix_kill($pid, \SIGKILL);
        succeeds($pid);
    },
    'a signal handler that uses the lock whose call it interrupts does not end its hold' => function (string $name) {
        foreach (['get', 'block'] as $call) {
            $lock = new DlockLock(Driver::of(signaled('DLOCK.ACQUIRE', function () use (&$lock) {
                try {
                    $lock->get();
                } catch (ServerError) {
                    // The call that is interrupted has not ended.
                }
            })), "app:cache:$name", 60);
            check($lock->$call(1) && null !== info($name, 'mode'), "$call: it is held");
            $left = connected()->rawCommand('DLOCK.CHECK', "app:cache:$name", $lock->fencingToken());
            check($left > 0, "$call: by this token");
            check($lock->release() && null === info($name, 'mode'), "$call: it is free");
        }
    },
    'a release whose reply is lost is told as no answer' => function (string $name) {
        global $client;
        [$pid, $port] = losing('RELEASE', getenv('DLOCK_TEST_HOST').':'.getenv('DLOCK_TEST_PORT'));
        $redis = 'phpredis' === $client ? new Redis() : new Predis\Client("tcp://127.0.0.1:$port");
        'phpredis' === $client ? $redis->connect('127.0.0.1', $port) : $redis->connect();
        $lock = new DlockLock(Driver::of($redis), "app:cache:$name", 60);
        check($lock->get(), 'it is acquired');
        check(Driver::isUnanswered(throws(Exception::class, fn () => $lock->release())), 'the client sends it once');
        posix_kill($pid, \SIGKILL);
        succeeds($pid);
    },
    'a server that hangs: no call takes longer than the limit of the client' => function (string $name) {
        $lock = function (int $port, int $number) use ($name) {
            global $client;
            if ('phpredis' === $client) {
                $redis = new Redis();
                $redis->connect('127.0.0.1', $port);
                $redis->setOption(Redis::OPT_READ_TIMEOUT, 2);
                $redis->select(5);
            } else {
                $redis = new Predis\Client(['host' => '127.0.0.1', 'port' => $port, 'database' => 5, 'read_write_timeout' => 2]);
            }
            $lock = new DlockLock(Driver::of($redis), "$name:$number", 60);
            check($lock->get() && $lock->release(), 'the server is there');

            return $lock;
        };
        $tasks = [
            [function (...$at) use ($lock) {
                $lock = $lock(...$at);

                return fn () => $lock->get();
            }, 2],
            [function (...$at) use ($lock) {
                $lock = $lock(...$at);
                $lock->get();

                return fn () => $lock->release();
            }, 2],
            [function (...$at) use ($lock) {
                $lock = $lock(...$at);

                return fn () => $lock->block(1);
            }, 6],
        ];
        hanging($name, $tasks);
    },
    'without the module, in a transaction, or over a client that is not understood: an error' => function (string $name) {
        global $client;
        $error = throws(ServerError::class, fn () => cache('plain')->lock($name, 1)->get());
        check(str_contains($error->getMessage(), 'is the dlock module loaded'), 'it says why');
        throws(InvalidArgumentException::class, fn () => cache()->lock($name, -1));
        throws(InvalidArgumentException::class, fn () => Driver::of(new ArrayObject()));
        throws(TypeError::class, fn () => new DlockStore(new RedisArray(['127.0.0.1:1'], ['lazy_connect' => true])));
        throws(InvalidArgumentException::class, fn () => Driver::of(new RedisArray(['127.0.0.1:1'], ['lazy_connect' => true])));
        throws(InvalidArgumentException::class, fn () => Driver::of(new Predis\Client(['tcp://127.0.0.1:1', 'tcp://127.0.0.1:2'])));
        $app = application();
        $redis = $app['redis']->connection()->client();
        'phpredis' === $client ? $redis->multi() : $redis->executeRaw(['MULTI']);
        throws(ServerError::class, fn () => $app['cache']->store()->lock($name, 1)->get());
    },
];

$phpredis = [
    'locks of a cluster' => function (string $name) {
        $lock = cache('nodes')->lock($name, 10);
        check($lock->get() && !cache('nodes')->lock($name, 10)->get(), 'one has it');
        $pid = elsewhere(fn () => cache('nodes')->lock($name, 10)->block(30));
        usleep(100000);
        check($lock->release() && succeeds($pid), 'then the other');
    },
    'a release whose reply a node of a cluster loses is told as no answer' => function (string $name) {
        [$server, $node] = started(isCluster: true);
        [$pid, $port] = losing('RELEASE', "127.0.0.1:$node");
        reached($node)->rawCommand('CONFIG', 'SET', 'cluster-announce-port', (string) $port);
        $lock = new DlockLock(Driver::of(new RedisCluster(null, ["127.0.0.1:$port"], 2.0, 2.0)), $name, 60);
        check($lock->get(), 'it is acquired');
        check(Driver::isUnanswered(throws(Exception::class, fn () => $lock->release())), 'the client sends it once');
        posix_kill($pid, \SIGKILL);
        succeeds($pid);
        proc_terminate($server, \SIGKILL);
    },
];
$programs = [
    'the program of the README' => function () {
        Illuminate\Support\Facades\Facade::setFacadeApplication(application());
        ob_start();
        require getenv('DLOCK_TEST_LARAVEL');
        check(1 === preg_match('/^the fencing token is [0-9]{16}$/', ob_get_clean()), 'it says its token');
    },
];
$predis = [
    'a signal handler that throws during a wait leaves no lock behind' => fn (string $name) => interrupted($name, fn () => new Predis\Client([
        'host' => getenv('DLOCK_TEST_HOST'), 'port' => (int) getenv('DLOCK_TEST_PORT'), 'read_write_timeout' => 0,
    ])),
    "Symfony's store, also with phpredis in CombinedStore" => function (string $name) {
        $predis = new Predis\Client(['path' => getenv('DLOCK_TEST_SECOND'), 'scheme' => 'unix'], ['prefix' => 'app:']);
        [$key, $other] = [new Key($name), new Key($name)];
        $store = new DlockStore($predis, 60, 1);
        $store->waitAndSave($key);
        check($store->exists($key) && $predis->exists($name), 'it is acquired, under the prefix');
        throws(LockConflictedException::class, fn () => $store->waitAndSave($other));
        $store->putOffExpiration($key, 30);
        $store->delete($key);
        $combined = new CombinedStore([new DlockStore(connected()), $store], new UnanimousStrategy());
        $combined->save($key);
        throws(LockConflictedException::class, fn () => $combined->save($other));
        $combined->delete($key);
        check(!$predis->exists($name) && !connected()->exists($name), 'it is released on both');
    },
];
$alone = [
    'a refresh that a cap cuts short returns false' => function (string $name) {
        connected()->rawCommand('CONFIG', 'SET', 'dlock.max-hold', '5000');
        try {
            $lock = cache()->lock($name, 5);
            check($lock->get(), 'it is acquired');
            usleep(20000);
            check(!$lock->refresh(5), 'the cap ends it earlier');
        } finally {
            connected()->rawCommand('CONFIG', 'SET', 'dlock.max-hold', '0');
        }
    },
];

/** Plays tests over a client. */
function play(string $over, array $chosen): bool
{
    global $client;
    $client = $over;
    $failed = 0;
    foreach (array_keys($chosen) as $title) {
        try {
            $chosen[$title]("$client:".getmypid().':'.crc32($title));
            echo "ok: $client: $title\n";
        } catch (Throwable $e) {
            echo "FAILED: $client: $title\n$e\n";
            ++$failed;
        }
    }

    return 0 === $failed;
}

$isRight = play('phpredis', $alone + $programs);
// The two run beside each other: most of the time they wait.
$other = elsewhere(fn () => play('predis', $tests + $predis));
$isRight = play('phpredis', $tests + $phpredis) && $isRight;
exit(succeeds($other) && $isRight ? 0 : 1);
