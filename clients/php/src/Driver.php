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

    /** How long after the end of a wait its reply may come, in seconds. */
    private const LATE = 5.0;

    /** By how many seconds a timeout of PHP may end too early. No command begins in this last part of a limit. */
    private const EARLY = 0.01;

    /** How many owners this process has made. */
    private static int $owners = 0;

    /** When the limit of the call that runs is over; null: no call runs. */
    private ?float $ends = null;

    /** The client's own limit for a reply, in seconds, while the driver may have set another; null: it has not. */
    private ?float $usual = null;

    /** @throws \InvalidArgumentException a client of another library */
    final public static function of(object $client): self
    {
        return match (true) {
            $client instanceof \Redis, $client instanceof \RedisCluster => new PhpRedisDriver($client),
            $client instanceof \Predis\ClientInterface => new PredisDriver($client),
            default => throw new \InvalidArgumentException(sprintf('dlock takes Redis, RedisCluster and Predis, not %s', $client::class)),
        };
    }

    /**
     * Returns whether an exception of a call says that no answer came. The command may still be executed.
     */
    final public static function isUnanswered(\Throwable $e): bool
    {
        return $e instanceof \RedisException || $e instanceof \RedisClusterException || $e instanceof \Predis\PredisException;
    }

    /** Returns an owner that nobody else has, and that names its host and process. */
    final public static function newOwner(): string
    {
        // A host has no colon and no space in an owner, and no character that is not ASCII.
        $host = substr(preg_replace('/[^!-9;-~]/', '?', gethostname() ?: ''), 0, 24);

        return sprintf('%s:%d:%d:%s', $host, getmypid(), ++self::$owners, bin2hex(random_bytes(8)));
    }

    /** Returns the seconds of a clock that only goes forward. */
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
     * Runs $work. All its commands together have the client's own limit for a reply, or $most seconds if that is less.
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
     * Runs $work, which waits. All its commands together have $seconds, and LATE more for a late reply; null: no limit.
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

    /** Returns whether a call runs. A call of the program that begins then comes from a signal handler. */
    final public function isRunning(): bool
    {
        return null !== $this->ends;
    }

    /** Returns how long a command may wait in the queue of the server, in seconds. */
    public function longestBlock(): float
    {
        return \INF;
    }

    /** Returns a name of the server and database to which the client is connected, or was connected last. */
    abstract public function server(): string;

    /** Returns whether the client is between multi() or pipeline() and exec(), and gives its replies later. */
    abstract public function isBusy(): bool;

    /** Returns a field of a map that is a list of names and values; null: there is none. */
    final public static function field(mixed $pairs, string $name): mixed
    {
        $at = \is_array($pairs) ? array_search($name, $pairs, true) : false;

        return false === $at ? null : $pairs[$at + 1];
    }

    /**
     * Returns whether an error says that the server writes nothing now: it is no primary, has not loaded its data, or
     * pauses. An agent without an answer says LOADING, too.
     */
    final protected static function isForNow(string $error): bool
    {
        return 1 === preg_match('/^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|UNBLOCKED|NOREPLICAS|MISCONF|BUSY) /', $error);
    }

    /** Returns FOREIGN for a WRONGTYPE, and throws any other error of a server. */
    final protected static function refused(string $error): string
    {
        return str_starts_with($error, 'WRONGTYPE ') ? self::FOREIGN : throw ServerError::from($error);
    }

    /**
     * Sends a command through the client, and returns its reply, with the limit of left().
     *
     * @param list<string|int> $arguments
     */
    abstract protected function send(string $command, string $key, array $arguments, bool $waits): mixed;

    /** Returns the client's own limit for a reply, in seconds; INF: none. */
    abstract protected function limit(): float;

    /** Limits each of the next replies, if the client can. */
    abstract protected function setLimit(float $seconds): void;

    /** Returns how long commands that clean up may go on, in seconds: 0 if the client cannot limit them. */
    protected function grace(): float
    {
        return 0;
    }

    /** Returns how long the next reply may take, in seconds. Null: the limit of the call is over. */
    final protected function left(bool $waits = false): ?float
    {
        $now = self::now();
        // A read may end EARLY before its limit. The client must not begin to connect in the moment that is left.
        $ends = $now < $this->ends - self::EARLY ? $this->ends : $this->ends + ($this->grace() ?: -self::EARLY);

        return $now < $ends ? max(0.001, min($ends - $now, $waits ? \INF : $this->usual)) : null;
    }

    /** Returns a timeout of PHP in seconds: 0 stands for PHP's default, and a negative number for no timeout. */
    final protected static function seconds(float $timeout): float
    {
        $seconds = $timeout ?: (float) \ini_get('default_socket_timeout');

        return $seconds < 0 ? \INF : $seconds;
    }

    /** Runs $work with a limit. Within another call, the limit of the outer call counts. */
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
            } catch (\Throwable $e) { // A signal handler threw. If it throws again, the next call restores the limit.
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
