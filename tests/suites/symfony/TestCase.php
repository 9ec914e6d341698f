<?php

declare(strict_types=1);

namespace PHPUnit\Framework;

class AssertionFailed extends \Exception
{
}

/** The part of PHPUnit that the tests use. */
abstract class TestCase
{
    private ?string $expected = null;

    /** Runs a test. Throws what it did wrong. */
    final public function play(string $test): void
    {
        try {
            $this->$test();
        } catch (\Throwable $e) {
            if (null === $this->expected || !$e instanceof $this->expected) {
                throw $e;
            }

            return;
        }
        null === $this->expected || $this->fail($this->expected.' was not thrown');
    }

    final public function expectException(string $class): void
    {
        $this->expected = $class;
    }

    final public function fail(string $why): never
    {
        throw new AssertionFailed($why);
    }

    final public function addToAssertionCount(int $number): void
    {
    }

    final public function assertSame(mixed $expected, mixed $actual, string $why = ''): void
    {
        $expected === $actual || $this->fail($why.' expected '.var_export($expected, true).', not '.var_export($actual, true));
    }

    final public function assertTrue(mixed $actual): void
    {
        $this->assertSame(true, $actual);
    }

    final public function assertFalse(mixed $actual): void
    {
        $this->assertSame(false, $actual);
    }

    final public function assertGreaterThanOrEqual(int|float $least, mixed $actual): void
    {
        $actual >= $least || $this->fail("expected at least $least, not $actual");
    }

    final public function assertLessThanOrEqual(int|float $most, mixed $actual): void
    {
        $actual <= $most || $this->fail("expected at most $most, not $actual");
    }
}
