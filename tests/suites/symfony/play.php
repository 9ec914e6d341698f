<?php

/**
 * Plays Symfony's tests of lock stores with DlockStore, and writes the results as tests/suites/run reads them.
 *
 *     php play.php DIRECTORY [TEST…]      DIRECTORY: the folder Tests of Symfony Lock
 */

declare(strict_types=1);

require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/../../../clients/php/src/DlockStore.php';
require __DIR__.'/TestCase.php';

use Dlock\DlockStore;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\CombinedStore;
use Symfony\Component\Lock\Strategy\ConsensusStrategy;
use Symfony\Component\Lock\Strategy\UnanimousStrategy;
use Symfony\Component\Lock\Tests\Store\AbstractRedisStoreTestCase;
use Symfony\Component\Lock\Tests\Store\AbstractStoreTestCase;
use Symfony\Component\Lock\Tests\Store\BlockingStoreTestTrait;
use Symfony\Component\Lock\Tests\Store\ExpiringStoreTestTrait;
use Symfony\Component\Lock\Tests\Store\SharedLockStoreTestTrait;

foreach (['ExpiringStoreTestTrait', 'SharedLockStoreTestTrait', 'BlockingStoreTestTrait', 'AbstractStoreTestCase', 'AbstractRedisStoreTestCase'] as $file) {
    require "$argv[1]/Store/$file.php";
}

/** Returns a store on the server of this number (0 to 2), on a connection of its own, because a test forks. */
function store(int $number): DlockStore
{
    return new DlockStore(connection($number));
}

function connection(int $number): \Redis
{
    $redis = new \Redis();
    $redis->connect(getenv('DLOCK_TEST_HOST'), (int) explode(' ', getenv('DLOCK_SUITE_PORTS'))[$number]);

    return $redis;
}

/** A store, with the tests for Redis: in one of them an older version of Symfony's own store holds the key. */
final class StoreTest extends AbstractRedisStoreTestCase
{
    use SharedLockStoreTestTrait;
    use BlockingStoreTestTrait;

    public function getStore(): PersistingStoreInterface
    {
        return store(0);
    }

    protected function getRedisConnection(): object
    {
        return connection(0);
    }
}

/** Stores behind Symfony's CombinedStore. */
abstract class CombinedTest extends AbstractStoreTestCase
{
    use ExpiringStoreTestTrait;
    use SharedLockStoreTestTrait;

    protected function getClockDelay(): int
    {
        return 250000; // microseconds
    }
}

final class MajorityOfThreeTest extends CombinedTest
{
    public function getStore(): PersistingStoreInterface
    {
        return new CombinedStore([store(0), store(1), store(2)], new ConsensusStrategy());
    }
}

final class AllOfThreeTest extends CombinedTest
{
    public function getStore(): PersistingStoreInterface
    {
        return new CombinedStore([store(0), store(1), store(2)], new UnanimousStrategy());
    }
}

final class CombinedOneTest extends CombinedTest
{
    public function getStore(): PersistingStoreInterface
    {
        return new CombinedStore([store(0)], new UnanimousStrategy());
    }
}

$results = fopen(getenv('DLOCK_SUITE_RESULTS'), 'a');
$only = \array_slice($argv, 2);
foreach ([StoreTest::class, CombinedOneTest::class, MajorityOfThreeTest::class, AllOfThreeTest::class] as $class) {
    foreach (get_class_methods($class) as $method) {
        $name = "$class::$method";
        if (!str_starts_with($method, 'test') || $only && !\in_array($name, $only, true)) {
            continue;
        }
        try {
            (new $class())->play($method);
            fwrite($results, "passed\t$name\n");
        } catch (\Throwable $e) {
            echo "$name: $e\n\n";
            fwrite($results, "failed\t$name\t".get_class($e).': '.preg_replace('/\s+/', ' ', $e->getMessage())."\n");
        }
    }
}
