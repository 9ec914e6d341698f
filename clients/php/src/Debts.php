<?php

declare(strict_types=1);

namespace Dlock;

/**
 * The releases that a server still has to get. A release is recorded before the command is sent that makes it
 * necessary, because a signal handler may throw between any two statements, even in code that cleans up.
 */
final class Debts
{
    /** @var array<int, array{key: string, arguments: list<string|int>, until: float}> */
    private array $owed = [];

    private int $last = 0;

    /** The id of the process that has recorded the releases. A process forked from it must not use its connection. */
    private int $process = 0;

    public function __construct(private Driver $driver)
    {
    }

    /**
     * Records a release.
     *
     * @param list<string|int> $arguments what follows the key in `DLOCK.RELEASE`
     * @param float            $until     when the lease is over, in Unix seconds: then the release is not needed
     *
     * @return int the number of the release, for `settle`
     */
    public function owe(string $key, array $arguments, float $until): int
    {
        $this->process = getmypid();
        $this->owed[++$this->last] = ['key' => $key, 'arguments' => $arguments, 'until' => $until];

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
                throw $e; // A signal handler has thrown it.
            }
            // The next call of `repay` sends this release again.
        }
    }
}
