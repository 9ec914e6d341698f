<?php

declare(strict_types=1);

namespace Dlock;

/** Sends commands through the client of the program, and makes one thing of its replies and errors. */
abstract class Driver
{
    /** The result of a call if the key has another type: another program holds the lock, or has overwritten it. */
    public const FOREIGN = 'foreign';

    /** How much longer than a wait its reply is waited for, in seconds. */
    protected const LATE = 5.0;

    /** @throws \InvalidArgumentException a client that is not understood */
    final public static function of(object $client): self
    {
        return match (true) {
            $client instanceof \Redis, $client instanceof \RedisCluster => new PhpRedisDriver($client),
            $client instanceof \Predis\ClientInterface => new PredisDriver($client),
            default => throw new \InvalidArgumentException(sprintf('dlock takes Redis, RedisCluster and Predis, not %s', $client::class)),
        };
    }

    /**
     * Whether an exception of a call says that no answer came. The command may still be executed.
     */
    final public static function isUnanswered(\Throwable $e): bool
    {
        return $e instanceof \RedisException || $e instanceof \RedisClusterException || $e instanceof \Predis\PredisException;
    }

    /**
     * @param list<string|int> $arguments what follows the key
     *
     * @return mixed an integer, null (nil), FOREIGN, or another reply
     *
     * @throws ServerError
     * @throws \Exception  no answer: see isUnanswered
     */
    abstract public function call(string $command, string $key, array $arguments = []): mixed;

    /**
     * Lets calls wait for their replies for so long, in seconds, and somewhat longer; null: without a limit.
     *
     * @template T
     *
     * @param callable(): T $work
     *
     * @return T
     */
    abstract public function patiently(?float $seconds, callable $work): mixed;

    /** Where the client is connected to, or was last: a client that has lost its connection does not say it. */
    abstract public function server(): string;

    /** Whether the client gives its replies later. */
    abstract public function isBusy(): bool;

    /** A field of a map. */
    final public static function field(mixed $pairs, string $name): mixed
    {
        $at = \is_array($pairs) ? array_search($name, $pairs, true) : false;

        return false === $at ? null : $pairs[$at + 1];
    }
}
