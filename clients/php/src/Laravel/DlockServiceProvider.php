<?php

declare(strict_types=1);

namespace Dlock\Laravel;

use Illuminate\Support\ServiceProvider;

/** Makes `'driver' => 'dlock'` a driver of config/cache.php, with the settings of the driver `redis`. */
final class DlockServiceProvider extends ServiceProvider
{
    public function boot(): void
    {
        $this->app['cache']->extend('dlock', function ($app, array $config) {
            $connection = $config['connection'] ?? 'default';
            $store = new DlockCacheStore($app['redis'], $config['prefix'] ?? $app['config']['cache.prefix'] ?? '', $connection);

            return $app['cache']->repository($store->setLockConnection($config['lock_connection'] ?? $connection));
        });
    }
}
