<?php

declare(strict_types=1);

namespace Dlock;

/** Sends commands through the extension redis (phpredis). */
final class PhpRedisDriver extends Driver
{
    /** The database of each client when this class last sent a command through it. */
    private static ?\WeakMap $databases = null;

    /** The last known parts of the address, for a client that is not connected. */
    private array $address = [];

    public function __construct(private \Redis|\RedisCluster $redis)
    {
    }

    public function isBusy(): bool
    {
        return \Redis::ATOMIC !== $this->redis->getMode();
    }

    /** A cluster's client keeps its first read timeout. A wait of half of it leaves time for the reply. */
    public function longestBlock(): float
    {
        return $this->redis instanceof \RedisCluster ? $this->limit() / 2 : \INF;
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

    protected function send(string $command, string $key, array $arguments, bool $waits): mixed
    {
        if ($this->isBusy()) {
            throw new ServerError('the client is between multi() or pipeline() and exec(): its replies come too late for a lock. Use a client of its own');
        }
        $this->redis->clearLastError();
        try {
            $this->select();
            $this->allow($waits);
            $words = [$command, $this->redis->_prefix($key), ...$arguments];
            // The client of a cluster sends the command to the node of the first argument.
            $reply = $this->redis instanceof \RedisCluster
                ? $this->redis->rawCommand($key, ...$words)
                : $this->redis->rawCommand(...$words);
        } catch (\RedisException|\RedisClusterException $e) {
            $error = $e->getMessage();
            if (1 === preg_match('/^[A-Z]{2,} /', $error) && !self::isForNow($error)) {
                // phpredis throws most errors of a server, after it has read the reply. The connection is still good.
                $this->redis->clearLastError();

                return self::refused($error);
            }
            // No answer has come, or the server writes nothing. Another command could take a late answer for its own.
            $this->redis->close();
            try {
                $this->select();
            } catch (ServerError|\RedisException) {
                // The next command selects the database again.
            }
            throw $e;
        }
        $error = $this->redis->getLastError();
        if (null !== $error) {
            $this->redis->clearLastError();

            return self::refused($error);
        }

        return false === $reply ? null : $reply;
    }

    protected function limit(): float
    {
        return self::seconds((float) $this->redis->getOption(\Redis::OPT_READ_TIMEOUT));
    }

    protected function setLimit(float $seconds): void
    {
        if ($this->redis instanceof \Redis) {
            $this->redis->setOption(\Redis::OPT_READ_TIMEOUT, \INF === $seconds ? -1 : $seconds);
        }
    }

    protected function grace(): float
    {
        return $this->redis instanceof \Redis ? self::CLEANUP : 0;
    }

    /** Limits the next reply to what is left of the caller's limit. Throws if nothing is left. */
    private function allow(bool $waits = false): void
    {
        $this->setLimit($this->left($waits) ?? throw new \RedisException('no answer in time'));
        // TCP's keepalive finds a dead connection during a wait. For a cluster, this option makes phpredis end the
        // process.
        if ($waits && $this->redis instanceof \Redis) {
            $this->redis->setOption(\Redis::OPT_TCP_KEEPALIVE, 1);
        }
    }

    /**
     * Selects the client's database again. After a failed read, even by the program, phpredis connects again in
     * database 0, although `getDbNum` still returns the other one.
     */
    private function select(): void
    {
        if (!$this->redis instanceof \Redis) {
            return;
        }
        self::$databases ??= new \WeakMap();
        $said = $this->redis->getDbNum();
        // A client that is not connected does not tell its database.
        $database = self::$databases[$this->redis] = \is_int($said) ? $said : self::$databases[$this->redis] ?? 0;
        if ($database > 0) {
            $this->allow();
            $this->redis->select($database) || throw new ServerError('the client cannot return to its database');
        }
    }
}
