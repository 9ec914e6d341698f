<?php

declare(strict_types=1);

namespace Dlock;

/**
 * Releases that got no answer, which are repeated. A release is recorded before the command is sent that makes it
 * necessary: a signal handler may throw between any two statements, even in code that cleans up.
 */
final class Debts
{
    /** @var array<int, array{key: string, arguments: list<string|int>, until: float}> */
    private array $owed = [];

    private int $last = 0;

    /** The process that owes them: a forked one must not use its connection. */
    private int $process = 0;

    public function __construct(private Driver $driver)
    {
    }

    /**
     * @param list<string|int> $arguments
     * @param float            $until     when the lease is over
     *
     * @return int its number, for `settle`
     */
    public function owe(string $key, array $arguments, float $until): int
    {
        $this->process = getmypid();
        $this->owed[++$this->last] = ['key' => $key, 'arguments' => $arguments, 'until' => $until];

        return $this->last;
    }

    /** Says that a release is not needed any more, or only until `$until`. */
    public function settle(int $number, float $until = 0): void
    {
        if ($until > 0 && isset($this->owed[$number])) {
            $this->owed[$number]['until'] = $until;
        } else {
            unset($this->owed[$number]);
        }
    }

    /** Sends the recorded releases again, up to one that is refused or not answered. The next call sends the rest. */
    public function repay(float $most = \INF): void
    {
        if ($this->owed && $this->process === getmypid() && !$this->driver->isBusy()) {
            $this->driver->promptly(fn () => $this->send(), $most);
        }
    }

    private function send(): void
    {
        try {
            while ($this->owed) {
                $first = array_key_first($this->owed);
                ['key' => $key, 'arguments' => $arguments, 'until' => $until] = $this->owed[$first];
                if ($until > microtime(true)) {
                    $this->driver->call('DLOCK.RELEASE', $key, $arguments);
                }
                unset($this->owed[$first]);
            }
        } catch (ServerError) {
            unset($this->owed[$first]); // The server refuses the release: the hold ends with its lease.
        } catch (\Exception $e) {
            if (!Driver::isUnanswered($e)) {
                throw $e; // A handler of a signal throws.
            }
            // The next call tries again.
        }
    }
}
