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

/**
 * Locks of the dlock module as a store for Symfony's Lock component.
 *
 * A blocking acquisition is one command: the server keeps the queue, first come, first served. Each acquisition has an
 * owner of its own, and each release names the fencing token, so a late release cannot affect the next holder.
 */
final class DlockStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    use ExpiringStoreTrait;

    private const WRITE = 'WRITE';
    private const READ = 'READ';

    /**
     * @param \Redis     $redis       a connected client. A blocking acquisition occupies it while it waits
     * @param float      $initialTtl  the lease of locks that are not refreshed, in seconds
     * @param float|null $longestWait how long a blocking acquisition waits, in seconds; null: as long as necessary
     */
    public function __construct(private \Redis $redis, private float $initialTtl = 300.0, private ?float $longestWait = null)
    {
        if (self::millis($initialTtl) < 1) {
            throw new InvalidTtlException(sprintf('a TTL is 1 ms or more, not %s s', $initialTtl));
        }
        if (null !== $longestWait && $longestWait <= 0) {
            throw new InvalidArgumentException(sprintf('the longest wait is more than 0 s, not %s', $longestWait));
        }
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
        if (self::millis($ttl) < 1) {
            throw new InvalidTtlException(sprintf('a TTL is 1 ms or more, not %s s', $ttl));
        }
        $hold = self::hold($key) ?? throw new LockConflictedException();
        $key->reduceLifetime($ttl);
        $renewed = $this->call('DLOCK.RENEW', $key, [$hold['owner'], 'PX', self::millis($ttl), 'TOKEN', $hold['token']]);
        if (null === $renewed) {
            throw new LockConflictedException();
        }
        if (0 === $renewed) {
            // A cap has cut it: it lasts for less than was asked.
            $left = $this->call('DLOCK.CHECK', $key, [$hold['token']]) ?? throw new LockConflictedException();
            $key->reduceLifetime($left / 1000);
        }
        $this->checkNotExpired($key);
    }

    public function delete(Key $key): void
    {
        $hold = self::hold($key);
        if (null === $hold) {
            return;
        }
        try {
            $this->call('DLOCK.RELEASE', $key, [$hold['owner'], $hold['mode'], 'ALL', 'TOKEN', $hold['token']]);
        } catch (\Exception $e) {
            throw new LockReleasingException(sprintf('the lock "%s" was not released, and ends with its lease', $key), 0, $e);
        }
        $key->removeState(self::class);
    }

    public function exists(Key $key): bool
    {
        $hold = self::hold($key);

        return null !== $hold && null !== $this->call('DLOCK.CHECK', $key, [$hold['token']]);
    }

    /**
     * The fencing token of the lock: greater than that of every earlier grant. Pass it to whatever the lock protects.
     * Null: the key has not been acquired with a store of this class.
     */
    public static function fencingToken(Key $key): ?int
    {
        return self::hold($key)['token'] ?? null;
    }

    private function take(Key $key, string $mode, bool $waits): void
    {
        if ('' === (string) $key) {
            throw new InvalidArgumentException('the name of a lock is empty');
        }
        $before = self::hold($key);
        if (null !== $before && $before['mode'] === $mode) {
            try {
                $this->putOffExpiration($key, $this->initialTtl);

                return;
            } catch (LockConflictedException) {
                $before = null; // It was lost.
                $key->resetLifetime();
            }
        }
        $owner = $before['owner'] ?? bin2hex(random_bytes(16));
        $token = $waits ? $this->wait($key, $owner, $mode) : $this->grant($key, $owner, $mode, []);
        $key->setState(self::class, ['owner' => $owner, 'token' => $token, 'mode' => $mode]);
        if ($waits) {
            // Nobody knows when the lease began.
            $this->putOffExpiration($key, $this->initialTtl);
        }
        if (null !== $before) {
            // A reader that becomes the writer, or the other way round, has both for a moment.
            $this->call('DLOCK.RELEASE', $key, [$owner, $before['mode'], 'TOKEN', $before['token']]);
        }
        $this->checkNotExpired($key);
    }

    private function wait(Key $key, string $owner, string $mode): int
    {
        // 0: that of PHP, which cannot be set as 0.
        $timeout = $this->redis->getReadTimeout() ?: (float) \ini_get('default_socket_timeout');
        $this->redis->setOption(\Redis::OPT_READ_TIMEOUT, null === $this->longestWait ? -1 : $this->longestWait + 5);
        $this->redis->setOption(\Redis::OPT_TCP_KEEPALIVE, 1);
        try {
            $millis = null === $this->longestWait ? 0 : self::millis($this->longestWait);

            return $this->grant($key, $owner, $mode, ['BLOCK', $millis]);
        } finally {
            $this->redis->setOption(\Redis::OPT_READ_TIMEOUT, $timeout);
        }
    }

    /** @param list<string|int> $block */
    private function grant(Key $key, string $owner, string $mode, array $block): int
    {
        $command = self::WRITE === $mode ? 'DLOCK.WLOCK' : 'DLOCK.RLOCK';
        $options = ['PX', self::millis($this->initialTtl), ...$block, 'REQUEST', bin2hex(random_bytes(8))];
        $key->reduceLifetime($this->initialTtl);
        try {
            $token = $this->call($command, $key, [$owner, ...$options]);
        } catch (\RedisException $e) {
            // It may have been granted nevertheless.
            $this->giveUp($key, $owner, $mode);
            throw new LockStorageException(sprintf('no answer from the server: %s', $e->getMessage()), 0, $e);
        }
        if ($block) {
            $key->resetLifetime();
        }

        return $token ?? throw new LockConflictedException();
    }

    private function giveUp(Key $key, string $owner, string $mode): void
    {
        try {
            $this->call('DLOCK.RELEASE', $key, [$owner, $mode, 'ALL']);
        } catch (\Exception) {
            // Then its lease ends it.
        }
    }

    /**
     * @param list<string|int> $arguments
     *
     * @return int|null null: nil
     *
     * @throws \RedisException      no answer
     * @throws LockStorageException the server has refused it
     */
    private function call(string $command, Key $key, array $arguments): ?int
    {
        $this->redis->clearLastError();
        try {
            $reply = $this->redis->rawCommand($command, $this->redis->_prefix((string) $key), ...$arguments);
        } catch (\RedisException $e) {
            // The reply that is missing would be taken for the answer to the next command, which connects again.
            $this->redis->close();
            throw $e;
        }
        $error = $this->redis->getLastError();
        if (null !== $error) {
            $this->redis->clearLastError();
            if (str_starts_with($error, 'DEADLOCK ')) {
                throw new LockConflictedException($error);
            }
            $isMissing = 1 === preg_match('/^ERR unknown command\b/i', $error);
            throw new LockStorageException($error.($isMissing ? ' (is the dlock module loaded on this server?)' : ''));
        }

        return \is_int($reply) ? $reply : null;
    }

    /** @return array{owner: string, token: int, mode: string}|null */
    private static function hold(Key $key): ?array
    {
        return $key->hasState(self::class) ? $key->getState(self::class) : null;
    }

    private static function millis(float $seconds): int
    {
        return (int) ceil($seconds * 1000);
    }
}
