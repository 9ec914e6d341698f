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

    /** The lease of a request that is repeated only to learn what the first one has got, in ms. */
    private const MOMENT = 1000;

    private ?int $token = null;

    /** Whether this object has generated the owner, and may replace it with another. */
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
        $this->debts->end();
    }

    /** False: another owner has the lock, or a lock of another kind has the key (`RedisLock`, `SET NX`). */
    public function acquire(): bool
    {
        return $this->debts->within(fn () => $this->driver->promptly(fn () => \is_int($this->ask([]))));
    }

    /**
     * @param int           $seconds
     * @param callable|null $callback
     *
     * @throws LockTimeoutException
     */
    public function block($seconds, $callback = null)
    {
        $blocks = function () use ($seconds) {
            $ends = Driver::now() + $seconds;
            $waits = fn () => $this->driver->patiently((float) $seconds, fn () => $this->waits($ends));

            return $this->debts->within($waits) ?: throw new LockTimeoutException();
        };

        return \is_callable($callback) ? $this->under($blocks, $callback) : $blocks();
    }

    /** @param callable|null $callback */
    public function get($callback = null)
    {
        return \is_callable($callback) ? $this->under(fn () => $this->acquire(), $callback) : $this->acquire();
    }

    /** False: this owner does not have the lock any more. */
    public function release(): bool
    {
        $token = $this->token ?? ($this->isOurs ? null : $this->heldToken());
        if (null === $token && !$this->isOurs) {
            return false;
        }
        $named = null === $token ? [] : ['TOKEN', $token];
        $debt = $this->owe($named);
        try {
            $this->token = null;
            $released = $this->driver->call('DLOCK.RELEASE', $this->name, [$this->owner, 'ALL', ...$named]);
        } catch (ServerError $e) {
            $this->debts->settle($debt);
            throw $e;
        } catch (\Throwable $e) {
            $this->debts->repeat($debt);
            $this->leaveOwner();
            throw $e;
        }
        $this->debts->settle($debt);

        return \is_int($released);
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
    private function under(callable $acquire, callable $callback): mixed
    {
        $process = getmypid();
        $before = $this->token;
        try {
            if (!$acquire()) {
                return false;
            }
            $result = $callback();
            $process === getmypid() && $this->release();

            return $result;
        } catch (\Throwable $e) {
            // A handler of a signal may throw once more, before the release is owed.
            while (!\in_array($this->token, [null, $before], true) && $process === getmypid()) {
                try {
                    $this->release();
                } catch (\Throwable) {
                    // The release is owed, or the lease ends the lock.
                }
            }
            throw $e;
        }
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

    /** Whether a grant still stands. Its lease began at an unknown time in the wait: after a long wait, renews it. */
    private function isCertain(float $sent): bool
    {
        if (Driver::now() - $sent <= ($this->seconds ?: self::LONGEST) / 3) {
            return true;
        }
        $token = $this->token;
        $debt = $this->owe(['TOKEN', $token]);
        try {
            $isHeld = $this->refresh();
        } catch (\Throwable $e) {
            $this->giveUp($debt);
            throw $e;
        }
        $this->debts->settle($debt);
        if ($isHeld) {
            return true;
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
        if ($this->debts->wouldEnd($this->name, $this->owner)) {
            throw new ServerError('an earlier request of this owner got no answer, and is still being undone');
        }
        $lease = 1000 * ($this->seconds ?: self::LONGEST);
        $request = ['REQUEST', bin2hex(random_bytes(8))];
        $words = [$this->owner, 'PX', $lease, ...$request, ...$block];
        // An owner that the program has named may have a hold that this object does not know.
        $debt = $this->owe([], $this->isOurs ? null : [$this->owner, 'PX', self::MOMENT, ...$request]);
        try {
            $token = $this->driver->call('DLOCK.ACQUIRE', $this->name, $words, [] !== $block);
            if (\is_int($token)) {
                $this->token = $token;
            }
        } catch (ServerError $e) {
            $this->debts->settle($debt);

            // The owner has the lock already, which Laravel's locks refuse.
            return str_starts_with($e->getMessage(), 'DEADLOCK ') ? null : throw $e;
        } catch (\Throwable $e) {
            // The lock may have been granted nevertheless.
            $this->giveUp($debt);
            throw $e;
        }
        $this->debts->settle($debt);

        return $token;
    }

    /** Releases all that is owed: `$debt` releases what the last command may get later. */
    private function giveUp(int $debt): void
    {
        $this->token = null;
        $this->debts->repeat($debt);
        $this->leaveOwner();
        $this->debts->repay();
    }

    /**
     * Remembers the release of what the owner has, or only of the hold of a request. Returns its number.
     *
     * @param list<string|int>      $named   the words of `TOKEN`, if the token is known
     * @param list<string|int>|null $request the repeat of the request
     */
    private function owe(array $named, ?array $request = null): int
    {
        return $this->debts->owe($this->name, [$this->owner, 'ALL', ...$named], \INF, $request);
    }

    /** Returns the token of the owner's hold: a release that names it ends no later one. Null: there is none. */
    private function heldToken(): ?int
    {
        $holds = Driver::field($this->driver->call('DLOCK.INFO', $this->name, ['OWNER', $this->owner]), 'holds');

        return $holds ? Driver::field($holds[0], 'token') : null;
    }

    /** A release that got no answer may come late, so the next acquisition has another owner. */
    private function leaveOwner(): void
    {
        if ($this->isOurs) {
            $this->owner = Driver::newOwner();
        }
    }
}
