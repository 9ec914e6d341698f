<?php

declare(strict_types=1);

namespace Dlock;

/**
 * The releases that a server still has to get. A release is recorded before the command is sent that makes it
 * necessary, because a signal handler may throw between any two statements, even in code that cleans up.
 *
 * @phpstan-type Words list<string|int>
 * @phpstan-type Debt array{key: string, arguments: Words, until: float, again: float, request: ?Words}
 */
final class Debts
{
    /** How long after the end of its connection a command may be executed, in seconds. */
    public const LATE = 1.0;

    /** @var array<int, Debt> */
    private array $owed = [];

    private int $last = 0;

    /** The number of the last release of the calls that a signal handler has interrupted with the present one. */
    private int $interrupted = 0;

    /** The id of the process that has recorded the releases. A process forked from it must not use its connection. */
    private int $process = 0;

    public function __construct(private Driver $driver)
    {
    }

    /**
     * Records a release.
     *
     * @param Words      $arguments what follows the key in `DLOCK.RELEASE`
     * @param float      $until     when the lease is over, in Unix seconds: then the release is not needed
     * @param Words|null $request   what follows the key in the repeat of a `DLOCK.ACQUIRE`: only the hold of that
     *                              request is released, and no other one of its owner
     *
     * @return int the number of the release, for `settle`
     */
    public function owe(string $key, array $arguments, float $until, ?array $request = null): int
    {
        $this->process = getmypid();
        $debt = ['key' => $key, 'arguments' => $arguments, 'until' => $until, 'again' => 0, 'request' => $request];
        $this->owed[++$this->last] = $debt;

        return $this->last;
    }

    /** Removes a release that is not needed any more. With `$until`, the release is needed until then. */
    public function settle(int $number, float $until = 0): void
    {
        if ($until > 0 && isset($this->owed[$number])) {
            $this->owed[$number]['until'] = $until;
        } else {
            unset($this->owed[$number]);
        }
    }

    /**
     * Says that a copy of the command, or of the release, got no answer, and may be executed later: the calls of `repay`
     * send the release again, until one does so LATE from now.
     */
    public function repeat(int $number): void
    {
        if (isset($this->owed[$number])) {
            $this->owed[$number]['again'] = Driver::now() + self::LATE;
        }
    }

    /**
     * Returns whether a recorded release would end the next hold of its owner. One with ALL and TOKEN ends no other
     * hold.
     */
    public function wouldEnd(string $key, string $owner): bool
    {
        $now = microtime(true);
        $ends = fn (array $debt) => $debt['key'] === $key && $debt['arguments'][0] === $owner && $debt['until'] > $now
            && [] !== array_diff(['ALL', 'TOKEN'], $debt['arguments']);

        return $this->process === getmypid() && [] !== array_filter($this->owed, $ends);
    }

    /**
     * Runs a call of the program. If a signal handler makes the call, `repay` leaves out the releases of the calls that
     * the signal has interrupted: such a call may have its grant already, and not have settled the release yet.
     *
     * @template T
     *
     * @param callable(): T $call
     *
     * @return T
     */
    public function within(callable $call): mixed
    {
        $before = $this->interrupted;
        try {
            $this->interrupted = $this->driver->isRunning() ? $this->last : 0;

            return $call();
        } finally {
            $this->interrupted = $before;
        }
    }

    /** Sends all recorded releases, because their object ends. */
    public function end(): void
    {
        $this->interrupted = 0;
        $this->repay(Driver::CLEANUP);
    }

    /**
     * Sends the recorded releases until one is refused or not answered; the next call sends the rest.
     *
     * @param float $most how many seconds all of them may take together
     */
    public function repay(float $most = \INF): void
    {
        if ($this->owed && $this->process === getmypid() && !$this->driver->isBusy()) {
            $this->driver->promptly(fn () => $this->send(), $most);
        }
    }

    private function send(): void
    {
        try {
            foreach (array_keys($this->owed) as $number) {
                if ($number <= $this->interrupted || !isset($this->owed[$number])) {
                    continue; // A signal handler leaves out those of interrupted calls, and may have sent this one.
                }
                ['until' => $until, 'again' => $again] = $this->owed[$number];
                $isOver = $until <= microtime(true);
                $isLast = $isOver || $again <= Driver::now();
                $isOver || $this->release($this->owed[$number]);
                if ($isLast) {
                    unset($this->owed[$number]);
                }
            }
        } catch (ServerError) {
            unset($this->owed[$number]); // The server refuses the release: the hold ends with its lease.
        } catch (\Exception $e) {
            if (!Driver::isUnanswered($e)) {
                throw $e; // A signal handler has thrown it.
            }
            $this->repeat($number);
        }
    }

    /** @param Debt $debt */
    private function release(array $debt): void
    {
        ['key' => $key, 'arguments' => $arguments, 'request' => $request] = $debt;
        if (null !== $request) {
            // The repeat gets the token of the request's hold. Otherwise it gets the lock for a moment, or nil.
            $token = $this->driver->call('DLOCK.ACQUIRE', $key, $request);
            if (!\is_int($token)) {
                return;
            }
            $arguments = [...$arguments, 'TOKEN', $token];
        }
        $this->driver->call('DLOCK.RELEASE', $key, $arguments);
    }
}
