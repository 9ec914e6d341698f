<?php

/** A program that uses the store for Symfony as its README says: php adopter.php DlockStore.php ROLE NAME */

declare(strict_types=1);

use Dlock\DlockStore;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\LockInterface;

require 'Symfony/Component/Lock/autoload.php';
require $argv[1];

// The time between two runs of the job, in ms.
const PERIOD = 4000;
[, , $role, $name] = $argv;

/** Ends the work under a lock that is lost. */
final class Abandoned extends Exception
{
}

function micros(): int
{
    return intdiv(hrtime(true), 1000);
}

function between(float $least, float $most): float
{
    return $least + mt_rand() / mt_getrandmax() * ($most - $least);
}

/** Sleeps this many ms. */
function pause(float $ms): void
{
    usleep((int) ($ms * 1000));
}

/** Waits for this many ms, or until the input closes. Returns whether it has closed. */
function stops(float $ms = 0): bool
{
    $read = [STDIN];
    $none = null;

    return stream_select($read, $none, $none, 0, (int) ($ms * 1000)) > 0 && false === fgets(STDIN);
}

/** An acquisition, whose events are written for the run that judges them (../README.md). */
final class Visit
{
    private static int $visits = 0;

    private int $id;

    private string $resource;

    private Redis $redis;

    public function __construct(string $resource, private int $lease, private int $wait)
    {
        $this->redis = connected();
        $this->id = ++self::$visits;
        // The store cannot wait for replicas to acknowledge a grant. Where other programs do, its locks have names of their
        // own (a prefix), because they may be lost in a failover.
        $this->resource = getenv('ADOPTER_OWN').$resource;
        $this->tell('asking', ['lock' => $this->resource, 'lease' => $lease, 'wait' => $wait]);
    }

    public function tell(string $event, array $fields = [], ?int $before = null): void
    {
        $line = ['event' => $event, 'id' => $this->id, 'at' => [$before ?? micros(), micros()]] + $fields;
        fwrite(STDOUT, json_encode($line)."\n");
    }

    /** Tells what the lock says of itself, and returns whether it is held. */
    public function holds(string $event, LockInterface $lock, array $fields = []): bool
    {
        $before = micros();
        $remaining = max(0.0, 1000 * $lock->getRemainingLifetime());
        $lost = $lock->isExpired();
        $this->tell($event, ['remaining' => $remaining, 'lost' => $lost] + $fields, $before);

        return $remaining > 0 && !$lost;
    }

    /** Works for a while, with a look at the lock every 100 ms, and a renewal when a third of the lease has passed. */
    public function works(LockInterface $lock, float $ms): void
    {
        $ends = micros() + $ms * 1000;
        $renewed = micros();
        while (micros() < $ends) {
            pause(min(100, max(1, ($ends - micros()) / 1000)));
            if (!$this->holds('still', $lock)) {
                throw new Abandoned('the lock is lost');
            }
            if (micros() - $renewed > $this->lease * 1000 / 3) {
                $renewed = micros();
                $lock->refresh($this->lease / 1000);
            }
        }
    }

    /**
     * Acquires the lock as a request of a web server does, with a connection of its own, and runs a function. With
     * `$keeps`, the lock is not released.
     */
    public function runs(Closure $function, bool $keeps = false): void
    {
        try {
            $wait = $this->wait > 0 ? $this->wait / 1000 : null;
            $key = new Key($this->resource);
            $factory = new LockFactory(new DlockStore($this->redis, $this->lease / 1000, $wait));
            // No automatic release: the destructor would repeat a release that has failed, and throw where nobody catches.
            $lock = $factory->createLockFromKey($key, $this->lease / 1000, false);
            if (!$lock->acquire(null !== $wait)) {
                $this->tell('refused');

                return;
            }
            $token = DlockStore::fencingToken($key);
            $this->holds('inside', $lock, ['token' => $token]);
            try {
                $function($lock, $token);
            } finally {
                $this->holds('leaving', $lock);
                if (!$keeps) {
                    $lock->release();
                }
            }
            $this->tell('left', ['kept' => $keeps]);
        } catch (Exception $e) {
            $cause = null !== $e->getPrevious() ? ' ('.$e->getPrevious()->getMessage().')' : '';
            $type = $e instanceof Abandoned ? 'abandoned' : $e::class;
            $this->tell('error', ['type' => $type, 'message' => $e->getMessage().$cause]);
            pause(200);
        }
    }
}

/** The client of a request. A server that is away is tried again, as users do who see an error. */
function connected(): Redis
{
    while (true) {
        try {
            return connect();
        } catch (RedisException) {
            pause(200);
        }
    }
}

/** A connected client. With Sentinel, asks one after the other where the primary is. */
function connect(): Redis
{
    $ports = array_map('intval', explode(',', getenv('ADOPTER_PORTS')));
    $at = ['127.0.0.1', $ports[0]];
    if ('sentinel' === getenv('ADOPTER_BY')) {
        foreach ($ports as $port) {
            $at = (new RedisSentinel('127.0.0.1', $port, 1.0, null, 0, 1.0))->getMasterAddrByName('locks');
            if ($at) {
                break;
            }
        }
    }
    $redis = new Redis();
    $redis->connect($at[0], (int) $at[1], 1.0, null, 0, 2.0);

    return $redis;
}

/** A web handler: pays an order, which other programs may be asked to pay at the same time. */
function web(string $name): void
{
    pause(between(50, 250));
    $order = intdiv((int) (microtime(true) * 1000), 500) - mt_rand(0, 2);
    $visit = new Visit("pay:$order", 3000, 1000);
    $visit->runs(function (LockInterface $lock, int $token) use ($visit, $order, $name): void {
        // The file plays a database that refuses tokens lower than one it has seen: ../rules.py leaves such rows out.
        $rows = getenv('ADOPTER_LEDGER').'/'.getenv('ADOPTER_OWN').$order;
        file_put_contents($rows, "begin $token $name\n", FILE_APPEND);
        if (str_contains(file_get_contents($rows), 'paid ')) {
            return;
        }
        pause(between(20, 150)); // The provider is called.
        if ($visit->holds('still', $lock)) {
            file_put_contents($rows, "paid $token $name\n", FILE_APPEND);
        }
    });
}

/** A worker of a pool: jobs of one customer run one at a time. */
function pool(): void
{
    $visit = new Visit('customer:'.mt_rand(0, 3), 2000, 2000);
    $visit->runs(fn (LockInterface $lock) => $visit->works($lock, mt_rand(1, 6) * between(50, 400)));
}

/** A candidate, which leads until its term ends or it resigns. Its waits are short, so that it sees its input close. */
function election(): void
{
    $visit = new Visit('leader', 2000, 2000);
    $visit->runs(function (LockInterface $lock) use ($visit): void {
        for ($resigns = micros() + between(1e6, 6e6); micros() < $resigns && !stops();) {
            $visit->works($lock, 1000);
        }
    });
}

/** A job that each machine's scheduler starts, once a period: its lock is not released, and ends before the next period. */
function cron(): void
{
    if (stops(PERIOD - (int) (microtime(true) * 1000) % PERIOD + between(0, 30))) {
        return;
    }
    // The event's `lease` is how long the lock stays: nine tenths of the period.
    $visit = new Visit('report', intdiv(PERIOD * 9, 10), 0);
    $visit->runs(fn (LockInterface $lock) => $visit->works($lock, between(100, 500)), true);
}

while (!stops()) {
    $role($name); // The function of that name.
}
