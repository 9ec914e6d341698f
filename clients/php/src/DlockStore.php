<?php

declare(strict_types=1);

namespace Dlock;

use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\InvalidArgumentException;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\ExpiringStoreTrait;

foreach (['ServerError', 'Driver', 'Debts', 'PhpRedisDriver', 'PredisDriver'] as $part) {
    require_once __DIR__."/$part.php"; // for programs without an autoloader
}

/**
 * Locks of the dlock module as a store for Symfony's Lock component.
 *
 * A blocking acquisition is one command: the server keeps the queue, first come, first served. Each acquisition has an
 * owner of its own, and each release names the fencing token, so a late release cannot affect the next holder.
 *
 * The state of a lock is in its `Key`: one owner, and a token for each server. So one store serves many keys, and one key
 * may go through several stores (`CombinedStore`) and, serialized, through several processes. A forked process has no
 * part in the locks of its parent: the destructors of the objects that it has from the parent release nothing.
 *
 * A command that got no answer may be executed at any time. So a renewal counts with the shortest lease that was sent and
 * not answered, and a key whose release was not answered is acquired with another owner. The store repeats that release
 * with its next call, and at its end. The release of a request names no token: while a store may send one, no other
 * store acquires a key of that owner, also in another process. The key says so (`undoes`).
 *
 * A `Hold` is what the store knows of a hold on one server: until when it is certain (`until`), the shortest lease of a
 * renewal that got no answer (`open`), both in seconds, and whether its release got no answer (`left`).
 *
 * @phpstan-type Hold array{owner: string, token: int, mode: string, until?: float, open?: float, left?: bool}
 * @phpstan-type State array{owner: string, holds: array<string, array>, undoes?: array<string, array{string, float}>}
 */
final class DlockStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    use ExpiringStoreTrait;

    private const WRITE = 'WRITE';
    private const READ = 'READ';

    /** How long a wait pauses while the key has another type, which is a lock of another kind, in microseconds. */
    private const PAUSE = 100000;

    /** The shortest lease in ms: both sides count whole ms, so that nothing is certain of a lease of 2 ms. */
    private const SHORTEST = 3;

    /** By how many seconds a lease is shorter for the client, for the same reason. */
    private const MARGIN = 0.002;

    /** The id of the process to which the state of each key belongs. */
    private static ?\WeakMap $processes = null;

    private Driver $driver;

    private Debts $debts;

    /** A name of this store that no other one has. */
    private string $name;

    /**
     * @param \Redis|\RedisCluster|\Predis\ClientInterface $redis a connected client. A blocking acquisition occupies it
     *                                                            while it waits
     * @param float      $initialTtl  the lease of locks that are not refreshed, in seconds
     * @param float|null $longestWait how long a blocking acquisition waits, in seconds; null: as long as necessary
     */
    public function __construct(\Redis|\RedisCluster|\Predis\ClientInterface $redis, private float $initialTtl = 300.0, private ?float $longestWait = null)
    {
        self::checkTtl($initialTtl);
        $this->driver = Driver::of($redis);
        $this->debts = new Debts($this->driver);
        $this->name = bin2hex(random_bytes(8));
        if (null !== $longestWait && $longestWait <= 0) {
            throw new InvalidArgumentException(sprintf('the longest wait must be more than 0 s, not %s', $longestWait));
        }
    }

    public function __destruct()
    {
        $this->debts->end();
    }

    public function save(Key $key): void
    {
        $this->take($key, self::WRITE, false);
    }

    public function saveRead(Key $key): void
    {
        $this->take($key, self::READ, false);
    }

    public function waitAndSave(Key $key): void
    {
        $this->take($key, self::WRITE, true);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->take($key, self::READ, true);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        // A TTL under SHORTEST ends the lock with a LockExpiredException, as in Symfony's own stores.
        self::checkTtl($ttl, 1);
        $this->debts->within(fn () => $this->driver->promptly(fn () => $this->extend($key, $ttl)));
    }

    public function delete(Key $key): void
    {
        $this->driver->promptly(fn () => $this->release($key));
    }

    /** False without an answer: a lock's destructor calls this, and an exception from it would end the program. */
    public function exists(Key $key): bool
    {
        try {
            return $this->driver->promptly(function () use ($key) {
                $hold = $this->hold($key);

                return null !== $hold && !($hold['left'] ?? false)
                    && \is_int($this->call('DLOCK.CHECK', $key, [$hold['token']])) && $this->takesReleases($key, $hold);
            });
        } catch (\Exception $e) {
            return Driver::isUnanswered($e) ? false : throw $e;
        }
    }

    /**
     * The fencing token of the lock: greater than that of every earlier grant. Pass it to whatever the lock protects.
     * Null: the key has not been acquired with a store of this class, or on several servers, whose tokens have no order.
     */
    public static function fencingToken(Key $key): ?int
    {
        $holds = self::state($key)['holds'] ?? [];

        return 1 === \count($holds) ? reset($holds)['token'] : null;
    }

    /**
     * Whether the server executes releases: a replica answers `DLOCK.CHECK`, too, and so does a server that pauses writes.
     * The owner has no hold with the token 1, so the release changes nothing.
     *
     * @param Hold $hold
     */
    private function takesReleases(Key $key, array $hold): bool
    {
        return null === $this->call('DLOCK.RELEASE', $key, [$hold['owner'], $hold['mode'], 'TOKEN', 1]);
    }

    private function extend(Key $key, float $ttl): void
    {
        $this->debts->repay();
        $hold = $this->hold($key);
        if (null === $hold || ($hold['left'] ?? false) || !$this->renew($key, $hold, $ttl)) {
            if ($this->isAlone($key)) {
                $key->reduceLifetime(0);
            }
            throw new LockConflictedException();
        }
        $this->checkNotExpired($key);
    }

    private function release(Key $key): void
    {
        $hold = $debt = null;
        try {
            $hold = $this->hold($key);
            if (null !== $hold) {
                $release = [$hold['owner'], $hold['mode'], 'ALL', 'TOKEN', $hold['token']];
                $debt = $this->debts->owe((string) $key, $release, $hold['until'] ?? microtime(true) + $this->initialTtl);
                $this->call('DLOCK.RELEASE', $key, $release);
                $this->debts->settle($debt);
                $this->forget($key);
            }
        } catch (\Exception $e) {
            if (null !== $debt) {
                $e instanceof LockStorageException ? $this->debts->settle($debt) : $this->leave($key, $hold);
            }
            throw new LockReleasingException(sprintf('the lock "%s" was not released, and ends with its lease', $key), 0, $e);
        }
    }

    private function take(Key $key, string $mode, bool $waits): void
    {
        if ('' === (string) $key) {
            throw new InvalidArgumentException('the name of a lock is empty');
        }
        $work = function () use ($key, $mode, $waits) {
            try {
                $this->acquire($key, $mode, $waits);
            } finally {
                $this->endDoubt($key);
            }
        };
        $this->debts->within(
            fn () => $waits ? $this->driver->patiently($this->longestWait, $work) : $this->driver->promptly($work)
        );
    }

    private function acquire(Key $key, string $mode, bool $waits): void
    {
        $this->debts->repay();
        $before = $this->hold($key);
        $isLeft = $before['left'] ?? false;
        if ($isLeft) {
            // A release that got no answer may still be executed, so the key gets a new owner.
            $before = null;
            $this->forget($key);
        }
        // A cap of that hold ends the new one, too.
        $mayBeCut = null !== $before;
        if (null !== $before && $before['mode'] === $mode) {
            if ($this->renew($key, $before, $this->initialTtl)) {
                $this->checkNotExpired($key);

                return;
            }
            $before = null; // The lock was lost.
            $this->forget($key);
        }
        $state = self::state($key);
        $owner = $isLeft ? Driver::newOwner() : $state['owner'] ?? Driver::newOwner();
        if ($this->debts->wouldEnd((string) $key, $owner) || $this->isUndone($state)) {
            throw new LockStorageException('an earlier request of this owner got no answer, and is still being undone');
        }
        if (null !== $state) {
            // A different process may go on with the key.
            $state = $this->undoing($state, \INF);
            self::setState($key, $state);
        }
        $debt = $this->debts->owe((string) $key, [$owner, $mode, 'ALL'], \INF);
        $former = null;
        try {
            $hold = $waits ? $this->wait($key, $owner, $mode, $mayBeCut) : $this->grant($key, $owner, $mode, $mayBeCut);
            $this->remember($key, $owner, $hold);
            if (null !== $before) {
                // A reader that becomes the writer, or the other way round, has both for a moment.
                $release = [$owner, $before['mode'], 'TOKEN', $before['token']];
                $former = $this->debts->owe((string) $key, $release, microtime(true) + $this->initialTtl);
            }
        } catch (LockStorageException|LockConflictedException $e) {
            $this->debts->settle($debt);
            if (null !== $before && $this->isAlone($key)) {
                $key->reduceLifetime(($before['until'] ?? \INF) - microtime(true)); // that of the former mode
            }
            throw $e;
        } catch (\Throwable $e) {
            // A handler of a signal has thrown: the lock may have been granted.
            try {
                null === $former || $this->debts->settle($former);
                $this->debts->settle($debt, microtime(true) + $this->initialTtl);
                $this->debts->repeat($debt);
                $this->debts->repay();
            } finally {
                self::restore($key, $state);
            }
            throw $e;
        }
        $this->debts->settle($debt);
        if (null !== $former) {
            $this->call('DLOCK.RELEASE', $key, $release);
            $this->debts->settle($former);
        }
        $this->checkNotExpired($key);
    }

    /**
     * Whether another store may still release all that the owner has on this server.
     *
     * @param State|null $state
     */
    private function isUndone(?array $state): bool
    {
        $undoes = $state['undoes'] ?? [];
        $server = $this->driver->server();
        // A key that does not know this server may know it by another address.
        if (isset($state['holds'][$server])) {
            $undoes = array_intersect_key($undoes, [$server => true]);
        }
        $isOpen = fn (array $undo) => $undo[0] !== $this->self() && $undo[1] > microtime(true);

        return [] !== array_filter($undoes, $isOpen);
    }

    /**
     * Returns the state of a key with the note that this store may release all that the owner has on this server.
     *
     * @param State $state
     *
     * @return State
     */
    private function undoing(array $state, float $until): array
    {
        $note = [$this->driver->server() => [$this->self(), $until]];

        return ['undoes' => $note + ($state['undoes'] ?? [])] + $state;
    }

    /** Removes that note at the end of a call, or limits its time if this store still owes the release. */
    private function endDoubt(Key $key): void
    {
        $state = self::state($key);
        $server = $this->driver->server();
        if (($state['undoes'][$server][0] ?? null) !== $this->self()) {
            return;
        }
        if ($this->debts->wouldEnd((string) $key, $state['owner'])) {
            $state = $this->undoing($state, microtime(true) + $this->initialTtl + Debts::LATE);
        } else {
            unset($state['undoes'][$server]);
        }
        self::setState($key, $state);
    }

    /** Returns the name of this store in this process: a forked one owes nothing. */
    private function self(): string
    {
        return "$this->name:".getmypid();
    }

    /**
     * Waits in the queue of the server. While the key has another type, there is no queue: the store asks again.
     *
     * @return array{token: int, mode: string, until: float}
     */
    private function wait(Key $key, string $owner, string $mode, bool $mayBeCut): array
    {
        $ends = null === $this->longestWait ? INF : Driver::now() + $this->longestWait;
        while (true) {
            $left = min(max(0.001, $ends - Driver::now()), $this->driver->longestBlock());
            $hold = $this->granted($key, $owner, $mode, ['BLOCK', INF === $left ? 0 : self::millis($left)]);
            if (\is_array($hold) && $this->isCertain($key, $owner, $hold, $mayBeCut)) {
                return $hold;
            }
            if (Driver::now() >= $ends || null === $hold && $left < $this->driver->longestBlock()) {
                throw new LockConflictedException();
            }
            if (Driver::FOREIGN === $hold) {
                usleep((int) min(self::PAUSE, max(1000, 1e6 * ($ends - Driver::now()))));
            }
            // A grant that is not certain has ended before the store read the reply: the store asks again.
        }
    }

    /**
     * Whether the hold of a grant is certain. Its lease counts from when the request was sent. If less than two thirds
     * of it are left, or if a cap may have cut it, the hold is renewed. False: it has ended.
     *
     * @param array{token: int, mode: string, until: float} $hold
     */
    private function isCertain(Key $key, string $owner, array &$hold, bool $mayBeCut): bool
    {
        if (!$mayBeCut && $hold['until'] - microtime(true) > $this->initialTtl * 2 / 3) {
            return true;
        }
        if ($this->isAlone($key)) {
            $key->resetLifetime();
        }
        $hold['until'] = microtime(true) + $this->initialTtl;
        $state = self::state($key);
        try {
            $isHeld = $this->renew($key, ['owner' => $owner] + $hold, $this->initialTtl);
            $hold = self::state($key)['holds'][$this->driver->server()] ?? $hold;

            return $isHeld;
        } catch (\Exception $e) {
            $this->giveUp($key, $owner, $hold['mode']);
            self::restore($key, $state);
            throw new LockStorageException(sprintf('no answer from the server: %s', $e->getMessage()), 0, $e);
        }
    }

    /** @return array{token: int, mode: string, until: float} */
    private function grant(Key $key, string $owner, string $mode, bool $mayBeCut): array
    {
        $hold = $this->granted($key, $owner, $mode, []);
        $isHeld = \is_array($hold) && (!$mayBeCut || $this->isCertain($key, $owner, $hold, true));

        return $isHeld ? $hold : throw new LockConflictedException();
    }

    /**
     * Sends the acquisition.
     *
     * @param list<string|int> $block the words of `BLOCK`, if it waits
     *
     * @return array{token: int, mode: string, until: float}|string|null null: refused; a string: FOREIGN
     */
    private function granted(Key $key, string $owner, string $mode, array $block): array|string|null
    {
        $command = self::WRITE === $mode ? 'DLOCK.WLOCK' : 'DLOCK.RLOCK';
        $options = ['PX', self::millis($this->initialTtl), ...$block, 'REQUEST', bin2hex(random_bytes(8))];
        $until = microtime(true) + $this->initialTtl - self::MARGIN;
        $key->reduceLifetime($this->initialTtl - self::MARGIN);
        try {
            $token = $this->call($command, $key, [$owner, ...$options], [] !== $block);
        } catch (\Exception $e) {
            if (!Driver::isUnanswered($e)) {
                throw $e;
            }
            // The lock may have been granted nevertheless.
            $this->giveUp($key, $owner, $mode);
            throw new LockStorageException(sprintf('no answer from the server: %s', $e->getMessage()), 0, $e);
        }

        return \is_int($token) ? ['token' => $token, 'mode' => $mode, 'until' => $until] : $token;
    }

    /** Releases what may have been granted: now or, if that gets no answer, with a later call. */
    private function giveUp(Key $key, string $owner, string $mode): void
    {
        $debt = $this->debts->owe((string) $key, [$owner, $mode, 'ALL'], microtime(true) + $this->initialTtl);
        $this->debts->repeat($debt);
        $this->debts->repay();
    }

    /**
     * The release of a hold got no answer: nothing is claimed any more.
     *
     * @param Hold $hold
     */
    private function leave(Key $key, array $hold): void
    {
        $this->remember($key, $hold['owner'], ['left' => true] + array_diff_key($hold, ['owner' => 0]));
        if ($this->isAlone($key)) {
            $key->reduceLifetime(0);
        }
    }

    /**
     * Renews the lease. False: the server no longer has the hold.
     *
     * @param Hold $hold
     */
    private function renew(Key $key, array $hold, float $ttl): bool
    {
        // A renewal that got no answer may still set its lease.
        $sure = min($ttl, $hold['open'] ?? INF);
        $until = microtime(true) + $sure - self::MARGIN;
        $key->reduceLifetime($sure - self::MARGIN);
        try {
            $renewed = $this->call('DLOCK.RENEW', $key, [$hold['owner'], 'PX', self::millis($ttl), 'TOKEN', $hold['token']]);
            if (0 === $renewed) {
                // A cap has cut the renewal: the hold lasts for less time than was asked for.
                $asked = microtime(true);
                $left = $this->call('DLOCK.CHECK', $key, [$hold['token']]);
                $renewed = $left;
                $until = min($until, $asked + (int) $left / 1000 - self::MARGIN);
                $key->reduceLifetime($until - microtime(true));
            }
        } catch (\Exception $e) {
            $before = min($until, $hold['until'] ?? 0);
            if (!$e instanceof LockStorageException) {
                $kept = ['until' => $before, 'open' => $sure] + array_diff_key($hold, ['owner' => 0]);
                $this->remember($key, $hold['owner'], $kept);
            }
            if ($this->isAlone($key)) {
                $key->reduceLifetime($before - microtime(true));
            }
            throw $e;
        }
        if (!\is_int($renewed)) {
            return false;
        }
        $this->remember($key, $hold['owner'], ['until' => $until] + array_diff_key($hold, ['owner' => 0]));

        return true;
    }

    /**
     * @param list<string|int> $arguments
     *
     * @return mixed an integer, null (nil), Driver::FOREIGN (the key has another type), or another reply
     *
     * @throws LockStorageException the server has refused it, or the client cannot send it now
     * @throws \Exception           no answer
     */
    private function call(string $command, Key $key, array $arguments, bool $waits = false): mixed
    {
        try {
            return $this->driver->call($command, (string) $key, $arguments, $waits);
        } catch (ServerError $e) {
            throw str_starts_with($e->getMessage(), 'DEADLOCK ') ? new LockConflictedException($e->getMessage()) : new LockStorageException($e->getMessage());
        }
    }

    /**
     * The hold of a key on this server. A key that was acquired before a failover, or in a process that reaches this
     * server at another address, has no token under this address: the server says whether the owner holds the lock.
     *
     * @return Hold|null
     */
    private function hold(Key $key): ?array
    {
        $state = self::state($key);
        if (null === $state) {
            return null;
        }
        $hold = $state['holds'][$this->driver->server()] ?? $this->found($key, $state['owner']);

        return null === $hold ? null : $hold + ['owner' => $state['owner']];
    }

    /**
     * The owner's hold, as the server tells it.
     *
     * @return array{token: int, mode: string}|null
     */
    private function found(Key $key, string $owner): ?array
    {
        $reply = $this->call('DLOCK.INFO', $key, ['OWNER', $owner]);
        $holds = \is_array($reply) ? Driver::field($reply, 'holds') : null;
        if (!$holds) {
            return null;
        }
        $mode = 'exclusive' === Driver::field($holds[0], 'mode') ? self::WRITE : self::READ;

        return ['token' => Driver::field($holds[0], 'token'), 'mode' => $mode];
    }

    /** @param array{token: int, mode: string, until: float} $hold */
    private function remember(Key $key, string $owner, array $hold): void
    {
        $holds = [$this->driver->server() => $hold] + (self::state($key)['holds'] ?? []);
        self::setState($key, ['owner' => $owner, 'holds' => $holds] + (self::state($key) ?? []));
    }

    private function forget(Key $key): void
    {
        $state = self::state($key);
        unset($state['holds'][$this->driver->server()]);
        if (empty($state['holds'])) {
            $key->removeState(self::class);
        } else {
            self::setState($key, $state);
        }
    }

    /** Whether this server alone has the lock. If not, the key's lifetime is that of the other servers' holds, too. */
    private function isAlone(Key $key): bool
    {
        return [] === array_diff_key(self::state($key)['holds'] ?? [], [$this->driver->server() => true]);
    }

    /** @return State|null */
    private static function state(Key $key): ?array
    {
        if (!$key->hasState(self::class)) {
            return null;
        }
        self::$processes ??= new \WeakMap();
        self::$processes[$key] ??= getmypid(); // A key that was unserialized belongs to the process that reads it.
        if (self::$processes[$key] !== getmypid()) {
            $key->removeState(self::class);

            return null;
        }

        return $key->getState(self::class) + ['holds' => []];
    }

    /** @param State $state */
    private static function setState(Key $key, array $state): void
    {
        self::$processes ??= new \WeakMap();
        self::$processes[$key] = getmypid();
        $key->setState(self::class, $state);
    }

    private static function restore(Key $key, ?array $state): void
    {
        null === $state ? $key->removeState(self::class) : self::setState($key, $state);
    }

    private static function checkTtl(float $ttl, int $shortest = self::SHORTEST): void
    {
        if (self::millis($ttl) < $shortest) {
            throw new InvalidTtlException(sprintf('a TTL is %d ms or more, not %s s: of a shorter one nothing is certain', $shortest, $ttl));
        }
    }

    private static function millis(float $seconds): int
    {
        return (int) ceil($seconds * 1000);
    }
}
