<?php

declare(strict_types=1);

namespace Dlock;

use Predis\ClientInterface;
use Predis\Connection\ConnectionException;
use Predis\Connection\NodeConnectionInterface;

/** Predis, connected to one server. */
final class PredisDriver extends Driver
{
    /** A year, in seconds: the limit of reads that have none, because PHP needs a limit. */
    private const FOREVER = 31536000;

    private NodeConnectionInterface $connection;

    public function __construct(private ClientInterface $client)
    {
        $connection = $client->getConnection();
        if (!$connection instanceof NodeConnectionInterface) {
            throw new \InvalidArgumentException(sprintf('dlock takes a Predis client of one server, not %s: give it a client of the primary, or RedisCluster', $connection::class));
        }
        $this->connection = $connection;
    }

    public function isBusy(): bool
    {
        return false; // Predis has separate objects for pipelines and transactions.
    }

    public function server(): string
    {
        $at = $this->connection->getParameters();

        return implode("\0", [$at->path ?? "$at->host:$at->port", (int) ($at->database ?? 0), $this->prefix()]);
    }

    protected function send(string $command, string $key, array $arguments, bool $waits): mixed
    {
        $words = array_map('strval', [$command, $this->prefix().$key, ...$arguments]);
        $error = false;
        try {
            $this->allow($waits);
            $reply = $this->client->executeRaw($words, $error);
        } catch (ServerError $e) {
            throw $e;
        } catch (\Throwable $e) { // a signal handler may throw, too
            // The unread reply would be taken for the answer to the next command. That command connects again.
            $this->connection->disconnect();
            throw $e;
        }
        if ($error && self::isForNow($reply)) {
            throw new ConnectionException($this->connection, $reply); // phpredis throws an exception here, too
        }
        if ($error) {
            return self::refused($reply);
        }
        if ('QUEUED' === $reply) {
            throw new ServerError('the client is between MULTI and EXEC: its replies come too late for a lock. Use a client of its own');
        }

        return $reply;
    }

    protected function limit(): float
    {
        $own = $this->connection->getParameters()->read_write_timeout;

        return null !== $own && $own <= 0 ? \INF : self::seconds((float) $own);
    }

    protected function setLimit(float $seconds): void
    {
        if ($this->connection->isConnected() && $this->isStream()) {
            $seconds = min($seconds, self::FOREVER);
            stream_set_timeout($this->connection->getResource(), (int) $seconds, (int) (fmod($seconds, 1) * 1e6));
        }
    }

    /** Connects, and limits the next reply to what is left of the caller's time. */
    private function allow(bool $waits): void
    {
        $this->left() ?? throw $this->late();
        if (!$this->isStream() && $waits) {
            throw new ServerError('a wait needs Predis\' own connections over streams, whose read timeout can be set');
        }
        $this->setLimit($this->left($waits) ?? throw $this->late());
    }

    /** Returns the exception for a limit that is over. */
    private function late(): ConnectionException
    {
        return new ConnectionException($this->connection, 'no answer in time');
    }

    /** Returns whether the connection is a stream of PHP, whose read timeout can be set. */
    private function isStream(): bool
    {
        $resource = $this->connection->getResource(); // connects

        return \is_resource($resource) && 'stream' === get_resource_type($resource);
    }

    private function prefix(): string
    {
        $prefix = $this->client->getOptions()->prefix;

        return null === $prefix ? '' : $prefix->getPrefix();
    }
}
