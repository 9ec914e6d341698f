<?php

declare(strict_types=1);

namespace Dlock\Laravel;

use Dlock\Driver;
use Illuminate\Cache\RedisStore;

/** Laravel's cache in Redis. `Cache::lock`, `onOneServer`, `WithoutOverlapping` and unique jobs use locks of dlock. */
final class DlockCacheStore extends RedisStore
{
    /**
     * Returns a lock that is not acquired yet.
     *
     * @param string      $name
     * @param int         $seconds the lease; 0: a year, which the server refuses if its `dlock.max-lease` is smaller
     * @param string|null $owner   null: a new owner
     */
    public function lock($name, $seconds = 0, $owner = null)
    {
        $client = $this->lockConnection()->client();

        return new DlockLock(Driver::of($client), $this->getPrefix().$name, (int) $seconds, $owner);
    }
}
