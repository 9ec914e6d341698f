<?php

/**
 * A signal handler throws at a statement of the store, or of Laravel's locks where Laravel is installed. In a second
 * run, it throws once more up to 20 statements later, often while the first exception is cleaned up. Afterwards nothing
 * stays held, the client has its own read timeout, and the next command gets its own reply. DLOCK_LINES=1 takes every
 * statement; the default is every 5th, from a random one.
 */

declare(strict_types=1);

use Symfony\Component\Lock\Key;

require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/kit.php';
@include_once 'Predis/autoload.php';
@include_once 'Illuminate/Cache/autoload.php';

/** The folder for a copy of the sources that calls the tick function at each statement. */
$sources = sys_get_temp_dir().'/dlock-php-'.bin2hex(random_bytes(8));
mkdir("$sources/Laravel", 0700, true);
foreach (array_merge(glob(__DIR__.'/../src/*.php'), [__DIR__.'/../src/Laravel/DlockLock.php']) as $file) {
    $ticking = str_replace('declare(strict_types=1);', 'declare(strict_types=1, ticks=1);', file_get_contents($file));
    file_put_contents($sources.substr($file, strlen(__DIR__.'/../src')), $ticking);
}
require "$sources/DlockStore.php";
class_exists(Illuminate\Cache\Lock::class) && require "$sources/Laravel/DlockLock.php";
array_map('unlink', array_merge(glob("$sources/*.php"), glob("$sources/*/*.php")));
rmdir("$sources/Laravel");
rmdir($sources);

/** The client's own read timeout, in s: a value that neither phpredis nor the package sets by itself. */
const LIMIT = 7.5;

/** The numbers of the statements at which the signal comes, and of the one that ran last; null: none is counted. */
$lines = [];
$line = null;
register_tick_function(function () use (&$lines, &$line) {
    if (null !== $line && in_array(++$line, $lines, true)) {
        posix_kill(getmypid(), \SIGUSR1);
    }
});

/** The tasks that are interrupted. Each returns a function that releases the lock if that is left to the program. */
$tasks = [
    'save' => fn (object $redis, string $name) => store_task($redis, $name, fn ($store, $key) => $store->save($key)),
    'waitAndSave' => fn (object $redis, string $name) => store_task($redis, $name, fn ($store, $key) => $store->waitAndSave($key)),
    'an upgrade' => fn (object $redis, string $name) => store_task(
        $redis, $name, fn ($store, $key) => $store->waitAndSave($key), fn ($store, $key) => $store->saveRead($key)),
    'delete' => fn (object $redis, string $name) => store_task(
        $redis, $name, fn ($store, $key) => $store->delete($key), fn ($store, $key) => $store->save($key)),
];
if (class_exists(Dlock\Laravel\DlockLock::class)) {
    $laravel = fn (object $redis, string $name) => new Dlock\Laravel\DlockLock(Dlock\Driver::of($redis), $name, 600);
    $tasks["Laravel's get"] = fn (object $redis, string $name) => laravel_task($laravel($redis, $name), fn ($lock) => $lock->get(fn () => null));
    $tasks["Laravel's block"] = fn (object $redis, string $name) => laravel_task($laravel($redis, $name), fn ($lock) => $lock->block(5, fn () => null));
}

function store_task(object $redis, string $name, callable $task, ?callable $before = null): Closure
{
    $store = new Dlock\DlockStore($redis, 600);
    $key = new Key($name);
    $before && $before($store, $key);
    interrupted_by_lines(fn () => $task($store, $key));

    return function () use ($store, $key) {
        $store->exists($key) && $store->delete($key); // The program releases what it holds.
        $store->save($next = new Key("$key:next")); // The store first sends the releases that it still owes.
        $store->delete($next);
    };
}

function laravel_task(Dlock\Laravel\DlockLock $lock, callable $task): Closure
{
    interrupted_by_lines(fn () => $task($lock));

    return function () use (&$lock) {
        $lock = null; // The destructor sends the releases that are owed. After a callback, the program holds nothing.
    };
}

function interrupted_by_lines(callable $task): void
{
    global $line;
    try {
        $line = 0;
        $task();
    } catch (Throwable) {
        // The exception is that of the handler, or wraps it.
    }
    [$line, $GLOBALS['ran']] = [null, $line];
}

/** Runs a task that is interrupted at these statements, in a process of its own. Returns whether it has the first. */
function goes_on(string $client, callable $task, string $name, array $at): bool
{
    global $lines;
    $pid = elsewhere(function () use ($client, $task, $name, $at) {
        $GLOBALS['lines'] = $at;
        pcntl_async_signals(true);
        pcntl_signal(\SIGUSR1, fn () => throw new DomainException('the signal'));
        $redis = clients((int) getenv('DLOCK_TEST_PORT'))[$client];
        $isNative = $redis instanceof Redis;
        $isNative ? $redis->setOption(Redis::OPT_READ_TIMEOUT, LIMIT) : $redis->echo('connects');
        $release = $task($redis, $name);
        $isOnce = 1 === count($at);
        // After a second exception, the next command sets the limit again.
        check(!$isNative || !$isOnce || LIMIT == $redis->getOption(Redis::OPT_READ_TIMEOUT), 'the client has its own limit at once');
        check('in step' === $redis->echo('in step'), 'the next command gets its own reply');
        $release();
        check(0 === connected()->exists($name), 'nothing is held');
        check(!$isNative || LIMIT == $redis->getOption(Redis::OPT_READ_TIMEOUT), 'the client has its own limit');
        connected()->rPush("$name:ran", $GLOBALS['ran']);

        return true;
    });
    check(succeeds($pid), "$name, interrupted at ".implode(' and ', $at));

    return (int) connected()->lPop("$name:ran") >= $at[0];
}

$step = (int) (getenv('DLOCK_LINES') ?: 5);
$played = $failed = 0;
foreach (array_keys(clients((int) getenv('DLOCK_TEST_PORT'))) as $client) {
    foreach ($tasks as $title => $task) {
        // Statements from the 1000th on are not interrupted.
        for ($at = random_int(1, $step); $at < 1000; $at += $step) {
            ++$played;
            $second = $at + random_int(1, 20);
            try {
                $goesOn = goes_on($client, $task, "interrupts:$client:$title:$at:".getmypid(), [$at]);
                goes_on($client, $task, "interrupts:$client:$title:$at:$second:".getmypid(), [$at, $second]);
            } catch (Throwable $e) {
                echo 'FAILED: '.$e->getMessage()."\n";
                ++$failed;
                continue;
            }
            if (!$goesOn) {
                break;
            }
        }
    }
}
echo "ok: $played lines were interrupted, $failed failed\n";
exit($failed ? 1 : 0);
