<?php

declare(strict_types=1);

namespace Dlock\Laravel;

use Dlock\Driver;
use Illuminate\Cache\RedisStore;

/** Laravel's cache in Redis, with locks of the dlock module: `Cache::lock`, `onOneServer`, `WithoutOverlapping`, unique jobs. */
final class DlockCacheStore extends RedisStore
{
    /**
     * @param string      $name
     * @param int         $seconds the lease; 0: a year, which a smaller `dlock.max-lease` refuses
     * @param string|null $owner
     */
    public function lock($name, $seconds = 0, $owner = null)
    {
        $client = $this->lockConnection()->client();

        return new DlockLock(Driver::of($client), $this->getPrefix().$name, (int) $seconds, $owner);
    }
}
