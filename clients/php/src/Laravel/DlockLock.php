<?php

declare(strict_types=1);

namespace Dlock\Laravel;

use Dlock\Debts;
use Dlock\Driver;
use Dlock\ServerError;
use Illuminate\Cache\Lock;
use Illuminate\Contracts\Cache\LockTimeoutException;

/**
 * A lock of Laravel's cache. `block` waits in the queue of the server.
 *
 * `owner()` is the owner on the server, so that `restoreLock` works in another process. An object that has acquired the lock
 * releases its own hold by the fencing token: a late release cannot affect the next holder.
 */
final class DlockLock extends Lock
{
    /** Laravel's locks without an end, in seconds: the longest lease of the module. */
    private const LONGEST = 31536000;

    private ?int $token = null;

    /** Whether another owner is as good: nobody has chosen this one. */
    private bool $isOurs;

    private Debts $debts;

    /** @param string|null $owner */
    public function __construct(private Driver $driver, string $name, int $seconds, $owner = null)
    {
        if ('' === $name) {
            throw new \InvalidArgumentException('the name of a lock is empty');
        }
        if ($seconds < 0) {
            throw new \InvalidArgumentException("a lock lasts for 0 s (no end) or more, not $seconds s");
        }
        $this->isOurs = null === $owner;
        $this->debts = new Debts($driver);
        parent::__construct($name, $seconds, $owner ?? Driver::newOwner());
    }

    public function __destruct()
    {
        $this->debts->repay(Driver::CLEANUP);
    }

    /** False: another owner has the lock, or a lock of another kind has the key (`RedisLock`, `SET NX`). */
    public function acquire(): bool
    {
        return $this->driver->promptly(fn () => \is_int($this->ask([])));
    }

    /**
     * @param int           $seconds
     * @param callable|null $callback
     *
     * @throws LockTimeoutException
     */
    public function block($seconds, $callback = null)
    {
        $ends = Driver::now() + $seconds;
        if (!$this->driver->patiently((float) $seconds, fn () => $this->waits($ends))) {
            throw new LockTimeoutException();
        }

        return \is_callable($callback) ? $this->under($callback) : true;
    }

    /** @param callable|null $callback */
    public function get($callback = null)
    {
        $isAcquired = $this->acquire();

        return $isAcquired && \is_callable($callback) ? $this->under($callback) : $isAcquired;
    }

    /** False: this owner does not have the lock any more. */
    public function release(): bool
    {
        $words = [$this->owner, 'ALL', ...(null === $this->token ? [] : ['TOKEN', $this->token])];
        $this->token = null;
        try {
            return \is_int($this->driver->call('DLOCK.RELEASE', $this->name, $words));
        } catch (ServerError $e) {
            throw $e;
        } catch (\Exception $e) {
            $this->owe();
            throw $e;
        }
    }

    /**
     * Sets the lease again, counted from now. False: this owner does not have the lock any more, or a cap ends it earlier.
     */
    public function refresh(?int $seconds = null): bool
    {
        $lease = 1000 * (($seconds ?? $this->seconds) ?: self::LONGEST);
        $words = [$this->owner, 'PX', $lease, ...(null === $this->token ? [] : ['TOKEN', $this->token])];

        return 1 === $this->driver->call('DLOCK.RENEW', $this->name, $words);
    }

    /** Deletes the lock, whoever has it. The next in the queue is granted it. */
    public function forceRelease(): void
    {
        $this->token = null;
        $this->driver->call('DEL', $this->name);
    }

    /** The fencing token of the lock that this object has acquired. Pass it to whatever the lock protects. */
    public function fencingToken(): ?int
    {
        return $this->token;
    }

    protected function getCurrentOwner(): ?string
    {
        $info = $this->driver->call('DLOCK.INFO', $this->name, ['FULL', 'COUNT', 1]);
        $holds = Driver::field($info, 'holds');

        return $holds ? Driver::field($holds[0], 'owner') : null;
    }

    /** The exception of the callback wins over that of the release. A child that the callback has forked releases nothing. */
    private function under(callable $callback): mixed
    {
        $process = getmypid();
        try {
            $result = $callback();
        } catch (\Throwable $e) {
            try {
                $process === getmypid() && $this->release();
            } catch (\Exception) {
                // The release is owed, or the lease ends the lock.
            }
            throw $e;
        }
        $process === getmypid() && $this->release();

        return $result;
    }

    private function waits(float $ends): bool
    {
        while (true) {
            $left = min($ends - Driver::now(), $this->driver->longestBlock());
            $sent = Driver::now();
            $token = $this->ask($left > 0 ? ['BLOCK', max(1, (int) ceil($left * 1000))] : []);
            if (\is_int($token) && $this->isCertain($sent)) {
                return true;
            }
            if (Driver::now() >= $ends || null === $token && $left < $this->driver->longestBlock()) {
                return false;
            }
            if (Driver::FOREIGN === $token) {
                usleep((int) min(1000 * $this->sleepMilliseconds, max(1000, 1e6 * ($ends - Driver::now()))));
            }
        }
    }

    /** Whether a grant is still there: its lease began somewhere in the wait. After a long one it is renewed. */
    private function isCertain(float $sent): bool
    {
        if (Driver::now() - $sent <= ($this->seconds ?: self::LONGEST) / 3) {
            return true;
        }
        $token = $this->token;
        try {
            if ($this->refresh()) {
                return true;
            }
        } catch (\Exception $e) {
            $this->giveUp();
            throw $e;
        }
        $this->driver->call('DLOCK.RELEASE', $this->name, [$this->owner, 'ALL', 'TOKEN', $token]); // a cap has cut it
        $this->token = null;

        return false;
    }

    /**
     * @param list<string|int> $block
     *
     * @return mixed the token, null, or FOREIGN
     */
    private function ask(array $block): mixed
    {
        $this->debts->repay();
        $lease = 1000 * ($this->seconds ?: self::LONGEST);
        $words = [$this->owner, 'PX', $lease, 'REQUEST', bin2hex(random_bytes(8)), ...$block];
        try {
            $token = $this->driver->call('DLOCK.ACQUIRE', $this->name, $words, [] !== $block);
        } catch (ServerError $e) {
            // The owner has the lock already, which Laravel's locks refuse.
            return str_starts_with($e->getMessage(), 'DEADLOCK ') ? null : throw $e;
        } catch (\Exception $e) {
            // The lock may have been granted nevertheless.
            $this->giveUp();
            throw $e;
        }
        if (\is_int($token)) {
            $this->token = $token;
        }

        return $token;
    }

    private function giveUp(): void
    {
        $this->token = null;
        $this->owe();
        $this->debts->repay();
    }

    /** Remembers a release that got no answer. It may come late, so the next acquisition has another owner. */
    private function owe(): void
    {
        $this->debts->owe($this->name, [$this->owner, 'ALL'], \INF);
        if ($this->isOurs) {
            $this->owner = Driver::newOwner();
        }
    }
}
