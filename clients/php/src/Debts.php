<?php

declare(strict_types=1);

namespace Dlock;

/** Releases that got no answer, which are repeated. */
final class Debts
{
    /** @var list<array{key: string, arguments: list<string|int>, until: float}> */
    private array $owed = [];

    /** The process that owes them: a forked one must not use its connection. */
    private int $process = 0;

    public function __construct(private Driver $driver)
    {
    }

    /**
     * @param list<string|int> $arguments
     * @param float            $until     when the lease is over
     */
    public function owe(string $key, array $arguments, float $until): void
    {
        $this->owed[] = ['key' => $key, 'arguments' => $arguments, 'until' => $until];
        $this->process = getmypid();
    }

    /** Sends again what is owed, until a server does not answer. */
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
                ['key' => $key, 'arguments' => $arguments, 'until' => $until] = $this->owed[0];
                if ($until > microtime(true)) {
                    $this->driver->call('DLOCK.RELEASE', $key, $arguments);
                }
                array_shift($this->owed);
            }
        } catch (ServerError) {
            array_shift($this->owed); // The server refuses it: then its lease ends it.
        } catch (\Exception) {
            // The next call tries again.
        }
    }
}
