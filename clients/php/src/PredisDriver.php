<?php

declare(strict_types=1);

namespace Dlock;

use Predis\ClientInterface;
use Predis\Connection\NodeConnectionInterface;

/** Predis, connected to one server. */
final class PredisDriver extends Driver
{
    /** A year, in seconds: PHP has no read without a limit. */
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
        return false; // Predis has objects of their own for pipelines and transactions.
    }

    public function call(string $command, string $key, array $arguments = []): mixed
    {
        $words = array_map('strval', [$command, $this->prefix().$key, ...$arguments]);
        $error = false;
        try {
            $reply = $this->client->executeRaw($words, $error);
        } catch (\Predis\CommunicationException $e) {
            // The reply that is missing would be taken for the answer to the next command, which connects again.
            $this->connection->disconnect();
            throw $e;
        }
        if ($error) {
            return str_starts_with($reply, 'WRONGTYPE ') ? self::FOREIGN : throw ServerError::from($reply);
        }
        if ('QUEUED' === $reply) {
            throw new ServerError('the client is between MULTI and EXEC: its replies come too late for a lock. Use a client of its own');
        }

        return $reply;
    }

    public function patiently(?float $seconds, callable $work): mixed
    {
        $resource = $this->connection->getResource();
        if (!\is_resource($resource) || 'stream' !== get_resource_type($resource)) {
            throw new ServerError('a wait needs Predis\' own connections over streams, whose read timeout can be set');
        }
        $within = null === $seconds ? self::FOREVER : $seconds + self::LATE;
        stream_set_timeout($resource, (int) $within, (int) (fmod($within, 1) * 1e6));
        try {
            return $work();
        } finally {
            if (\is_resource($resource)) {
                $before = (float) ($this->connection->getParameters()->read_write_timeout ?? \ini_get('default_socket_timeout'));
                $before = $before > 0 ? $before : (float) self::FOREVER;
                stream_set_timeout($resource, (int) $before, (int) (fmod($before, 1) * 1e6));
            }
        }
    }

    public function server(): string
    {
        $at = $this->connection->getParameters();

        return implode("\0", [$at->path ?? "$at->host:$at->port", (int) ($at->database ?? 0), $this->prefix()]);
    }

    private function prefix(): string
    {
        $prefix = $this->client->getOptions()->prefix;

        return null === $prefix ? '' : $prefix->getPrefix();
    }
}
