<?php

declare(strict_types=1);

namespace Dlock;

/** Sends commands through the client of the program, and gives the replies and errors of all clients one form. */
abstract class Driver
{
    /** The result of a call if the key has another type: another program holds the lock, or has overwritten it. */
    public const FOREIGN = 'foreign';

    /** How long a command that cleans up may take after the end of a limit, in seconds. */
    public const CLEANUP = 0.5;

    /** How late after the end of a wait its reply may come, in seconds. */
    private const LATE = 5.0;

    /** How much too early a timeout of PHP may end, in seconds. No command begins in the last moment of a limit. */
    private const EARLY = 0.01;

    private static int $owners = 0;

    /** When the limit of the caller is over; null: nobody has called. */
    private ?float $ends = null;

    /** The client's own limit for a reply, in seconds, while the driver may have set another one; null: it has not. */
    private ?float $usual = null;

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

    /** A name that nobody else has, and that says who it is. */
    final public static function newOwner(): string
    {
        $host = substr(preg_replace('/[^!-9;-~]/', '?', gethostname() ?: ''), 0, 24);

        return sprintf('%s:%d:%d:%s', $host, getmypid(), ++self::$owners, bin2hex(random_bytes(8)));
    }

    /** Seconds of a clock that nobody sets. */
    final public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /**
     * @param list<string|int> $arguments what follows the key
     * @param bool             $waits     whether the reply may take longer than the client's own limit
     *
     * @return mixed an integer, null (nil), FOREIGN, or another reply
     *
     * @throws ServerError
     * @throws \Exception  no answer: see isUnanswered
     */
    final public function call(string $command, string $key, array $arguments = [], bool $waits = false): mixed
    {
        return $this->promptly(fn () => $this->send($command, $key, $arguments, $waits));
    }

    /**
     * Runs a call. All its commands together have the client's own limit for a reply, or $most seconds if that is less.
     *
     * @template T
     *
     * @param callable(): T $work
     *
     * @return T
     */
    final public function promptly(callable $work, float $most = \INF): mixed
    {
        return $this->within(min($most, $this->usual ?? $this->limit()), $work);
    }

    /**
     * Runs a call that waits. All its commands together have $seconds, and some more for a late reply; null: no limit.
     *
     * @template T
     *
     * @param callable(): T $work
     *
     * @return T
     */
    final public function patiently(?float $seconds, callable $work): mixed
    {
        return $this->within(null === $seconds ? \INF : $seconds + self::LATE, $work);
    }

    /** How long a command may wait in the queue of the server, in seconds. */
    public function longestBlock(): float
    {
        return \INF;
    }

    /** Where the client is connected to, or was last: a client that has lost its connection does not say it. */
    abstract public function server(): string;

    /** Whether the client gives its replies later: it is between multi() or pipeline() and exec(). */
    abstract public function isBusy(): bool;

    /** A field of a map. */
    final public static function field(mixed $pairs, string $name): mixed
    {
        $at = \is_array($pairs) ? array_search($name, $pairs, true) : false;

        return false === $at ? null : $pairs[$at + 1];
    }

    /**
     * Whether a server says that it writes nothing now: it is no primary, has not loaded its data, or pauses. An agent without
     * an answer says LOADING, too.
     */
    final protected static function isForNow(string $error): bool
    {
        return 1 === preg_match('/^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|UNBLOCKED|NOREPLICAS|MISCONF|BUSY) /', $error);
    }

    /** FOREIGN, or an exception, for any other error of a server. */
    final protected static function refused(string $error): string
    {
        return str_starts_with($error, 'WRONGTYPE ') ? self::FOREIGN : throw ServerError::from($error);
    }

    /** @param list<string|int> $arguments */
    abstract protected function send(string $command, string $key, array $arguments, bool $waits): mixed;

    /** The client's own limit for a reply, in seconds; INF: none. */
    abstract protected function limit(): float;

    /** Limits the next replies, each of them, as far as the client can. */
    abstract protected function setLimit(float $seconds): void;

    /** How long commands go on that clean up, in seconds: 0 if the client cannot limit them. */
    protected function grace(): float
    {
        return 0;
    }

    /** How long the next reply may take, in seconds. Null: the limit of the caller is over. */
    final protected function left(bool $waits = false): ?float
    {
        $now = self::now();
        // A read may end a moment early. No connection is made in the time that is left then.
        $ends = $now < $this->ends - self::EARLY ? $this->ends : $this->ends + ($this->grace() ?: -self::EARLY);

        return $now < $ends ? max(0.001, min($ends - $now, $waits ? \INF : $this->usual)) : null;
    }

    /** A timeout of PHP in seconds: 0 is PHP's own, and less than 0 none. */
    final protected static function seconds(float $timeout): float
    {
        $seconds = $timeout ?: (float) \ini_get('default_socket_timeout');

        return $seconds < 0 ? \INF : $seconds;
    }

    /** A call within another call has the limit of the outer one. */
    private function within(float $seconds, callable $work): mixed
    {
        if (null !== $this->ends) {
            return $work();
        }
        try {
            $this->usual ??= $this->limit();
            $this->ends = self::now() + $seconds;

            return $work();
        } finally {
            try {
                $this->ends = null;
                $this->restore();
            } catch (\Throwable $e) { // A signal handler threw. If another one throws, the next call restores it.
                $this->ends = null;
                $this->restore();
                throw $e;
            }
        }
    }

    /** Gives the client its own limit again. */
    private function restore(): void
    {
        if (null !== $this->usual) {
            $this->setLimit($this->usual);
            $this->usual = null;
        }
    }
}
