<?php

declare(strict_types=1);

namespace Dlock;

/** The extension redis (phpredis). */
final class PhpRedisDriver extends Driver
{
    /** The database of each client before its last command. */
    private static ?\WeakMap $databases = null;

    private array $address = [];

    public function __construct(private \Redis|\RedisCluster $redis)
    {
    }

    public function isBusy(): bool
    {
        return \Redis::ATOMIC !== $this->redis->getMode();
    }

    public function call(string $command, string $key, array $arguments = []): mixed
    {
        if ($this->isBusy()) {
            throw new ServerError('the client is between multi() or pipeline() and exec(): its replies come too late for a lock. Use a client of its own');
        }
        $this->redis->clearLastError();
        try {
            $this->select();
            $words = [$command, $this->redis->_prefix($key), ...$arguments];
            // A cluster sends it to the node of the key.
            $reply = $this->redis instanceof \RedisCluster
                ? $this->redis->rawCommand($key, ...$words)
                : $this->redis->rawCommand(...$words);
        } catch (\RedisException|\RedisClusterException $e) {
            // The reply that is missing would be taken for the answer to the next command, which connects again.
            $this->redis->close();
            try {
                $this->select();
            } catch (\Exception) {
                // The next command of a store tries again.
            }
            throw $e;
        }
        $error = $this->redis->getLastError();
        if (null !== $error) {
            $this->redis->clearLastError();

            return str_starts_with($error, 'WRONGTYPE ') ? self::FOREIGN : throw ServerError::from($error);
        }

        return false === $reply ? null : $reply;
    }

    public function patiently(?float $seconds, callable $work): mixed
    {
        // 0: that of PHP, which cannot be set as 0.
        $timeout = (float) $this->redis->getOption(\Redis::OPT_READ_TIMEOUT) ?: (float) \ini_get('default_socket_timeout');
        $this->redis->setOption(\Redis::OPT_READ_TIMEOUT, null === $seconds ? -1 : $seconds + self::LATE);
        if ($this->redis instanceof \Redis) { // phpredis ends the process if this is set for a cluster.
            $this->redis->setOption(\Redis::OPT_TCP_KEEPALIVE, 1);
        }
        try {
            return $work();
        } finally {
            $this->redis->setOption(\Redis::OPT_READ_TIMEOUT, $timeout);
        }
    }

    public function server(): string
    {
        if ($this->redis instanceof \RedisCluster) {
            $masters = array_map(fn (array $master) => implode(':', $master), $this->redis->_masters());
            sort($masters);
            $this->address = $masters;
        } elseif (false !== $host = $this->redis->getHost()) {
            $this->address = [$host, $this->redis->getPort(), $this->redis->getDbNum()];
        }

        return implode("\0", [...$this->address, $this->redis->_prefix('')]);
    }

    /**
     * Selects the client's database once more: after a read that failed, one of the program's too, phpredis connects again
     * in database 0, whatever `getDbNum` says.
     */
    private function select(): void
    {
        if (!$this->redis instanceof \Redis) {
            return;
        }
        self::$databases ??= new \WeakMap();
        $said = $this->redis->getDbNum();
        // A client that is not connected does not say it.
        $database = self::$databases[$this->redis] = \is_int($said) ? $said : self::$databases[$this->redis] ?? 0;
        if ($database > 0 && !$this->redis->select($database)) {
            throw new ServerError('the client cannot return to its database');
        }
    }
}
