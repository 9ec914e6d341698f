<?php

/** Functions for the tests of the store and of Laravel's locks. */

declare(strict_types=1);

// How late a busy machine may be, in seconds.
const LATE = 0.9;

function connected(): Redis
{
    $redis = new Redis();
    $redis->connect(getenv('DLOCK_TEST_HOST'), (int) getenv('DLOCK_TEST_PORT'));

    return $redis;
}

/** Returns a connected client to which a signal comes right after the reply to the first command with this name. */
function signaled(string $command, callable $handler): Redis
{
    pcntl_signal(\SIGUSR1, fn () => $handler());
    $redis = new class($command) extends Redis {
        public function __construct(public ?string $command)
        {
            parent::__construct();
        }

        public function rawCommand($command, ...$arguments): mixed
        {
            $reply = parent::rawCommand($command, ...$arguments);
            if ($command === $this->command) {
                $this->command = null;
                posix_kill(getmypid(), \SIGUSR1);
                pcntl_signal_dispatch();
            }

            return $reply;
        }
    };
    $redis->connect(getenv('DLOCK_TEST_HOST'), (int) getenv('DLOCK_TEST_PORT'));

    return $redis;
}

function reached(int $port): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', $port);

    return $redis;
}

/**
 * Clients of each kind that is installed, with a short limit for replies.
 *
 * @return array<string, Redis|Predis\Client>
 */
function clients(int $port): array
{
    $clients = ['phpredis' => reached($port)];
    $clients['phpredis']->setOption(Redis::OPT_READ_TIMEOUT, 0.3);
    @include_once 'Predis/autoload.php';
    if (class_exists(Predis\Client::class)) {
        $clients['predis'] = new Predis\Client(['host' => '127.0.0.1', 'port' => $port, 'read_write_timeout' => 0.3]);
    }

    return $clients;
}

function check(bool $condition, string $what): void
{
    if (!$condition) {
        throw new Exception("not so: $what");
    }
}

/** @param class-string $class */
function throws(string $class, callable $task): Throwable
{
    try {
        $task();
    } catch (Throwable $e) {
        check($e instanceof $class, "$class and not ".$e);

        return $e;
    }
    throw new Exception("$class was not thrown");
}

function until(string $what, callable $condition): void
{
    for ($end = microtime(true) + 60; !$condition(); usleep(5000)) {
        check(microtime(true) < $end, "in 60 s: $what");
    }
}

/**
 * Runs a task in a process of its own, which ends by a signal: SIGTERM if the task returns true, otherwise SIGKILL. A signal
 * runs no destructors of the objects that the process has from its parent.
 */
function elsewhere(callable $task): int
{
    $pid = pcntl_fork();
    if (0 === $pid) {
        try {
            $isRight = $task();
        } catch (Throwable $e) {
            fwrite(\STDERR, $e."\n");
            $isRight = false;
        }
        posix_kill(getmypid(), $isRight ? \SIGTERM : \SIGKILL);
    }

    return $pid;
}

/** Waits for the end of a process from `elsewhere`, and returns whether its task returned true. */
function succeeds(int $pid): bool
{
    pcntl_waitpid($pid, $status);

    return pcntl_wifsignaled($status) && \SIGTERM === pcntl_wtermsig($status);
}

/**
 * Starts another server with the module. With `isCluster`, the server is a cluster of one node, with all slots.
 *
 * @return array{resource, int} the process and the port
 */
function started(int $port = 0, bool $isCluster = false): array
{
    $port = $port ?: free_port();
    $more = $isCluster ? ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] : [];
    $home = sys_get_temp_dir().'/dlock-php-'.bin2hex(random_bytes(8));
    mkdir($home);
    register_shutdown_function(function () use ($home) {
        array_map('unlink', glob("$home/*"));
        rmdir($home);
    });
    $server = proc_open([getenv('DLOCK_TEST_SERVER'), '--port', (string) $port, '--bind', '127.0.0.1', '--save', '', '--dir',
        $home, '--loadmodule', getenv('DLOCK_TEST_MODULE'), ...$more], [1 => ['file', '/dev/null', 'w']], $pipes);
    $redis = new Redis();
    until('the server is there', function () use ($redis, $server, $port) {
        check(proc_get_status($server)['running'], 'the server runs');

        return reaches($redis, $port);
    });
    if ($isCluster) {
        $redis->rawCommand('CLUSTER', 'ADDSLOTSRANGE', 0, 16383);
        until('the cluster is there', fn () => str_contains($redis->rawCommand('CLUSTER', 'INFO'), 'cluster_state:ok'));
    }

    return [$server, $port];
}

/**
 * Starts a relay in front of a server. It loses the reply to the first command with a word, and closes that connection.
 *
 * @param string $server the address of the server
 *
 * @return array{int, int} the process and the port
 */
function losing(string $word, string $server): array
{
    $listener = stream_socket_server('tcp://127.0.0.1:0');
    $port = (int) explode(':', stream_socket_get_name($listener, false))[1];
    $pid = elsewhere(function () use ($listener, $word, $server) {
        for ($isLost = false; $from = stream_socket_accept($listener, 30); fclose($from)) {
            $to = stream_socket_client("tcp://$server");
            while ('' !== ($words = (string) fread($from, 65536))) {
                fwrite($to, $words);
                $reply = fread($to, 65536);
                if (!$isLost && str_contains($words, $word)) {
                    $isLost = true;
                    break;
                }
                fwrite($from, $reply);
            }
        }

        return true;
    });
    fclose($listener);

    return [$pid, $port];
}

/**
 * Starts a relay in front of a server. Each fault happens once, in this order: at a command with the first word, the
 * relay ends the connection. It passes the command on after the next command with the second word, or half a second
 * later; never if that word is empty.
 *
 * @param list<array{string, string}> $faults the two words of each fault
 *
 * @return array{int, int} the process and the port
 */
function failing(array $faults, string $server): array
{
    $listener = stream_socket_server('tcp://127.0.0.1:0');
    $port = (int) explode(':', stream_socket_get_name($listener, false))[1];
    $pid = elsewhere(function () use ($listener, $faults, $server) {
        $kept = '';
        $passes = function () use (&$kept, $server) {
            $to = stream_socket_client("tcp://$server");
            fwrite($to, $kept);
            fread($to, 65536);
            $kept = '';
        };
        for (; $from = stream_socket_accept($listener, 30); fclose($from)) {
            $to = stream_socket_client("tcp://$server");
            while ('' !== ($words = (string) fread($from, 65536))) {
                if ($faults && str_contains($words, $faults[0][0])) {
                    [, $after] = array_shift($faults);
                    [$kept, $began] = ['' === $after ? '' : $words, microtime(true)];
                    break;
                }
                '' === $kept || microtime(true) - $began < 0.5 || $passes();
                fwrite($to, $words);
                $reply = fread($to, 65536);
                '' === $kept || !str_contains($words, $after) || $passes();
                fwrite($from, $reply);
            }
        }

        return true;
    });
    fclose($listener);

    return [$pid, $port];
}

/** Returns a port where nobody listens, and that no other suite takes as long as this process runs: see CONTRIBUTING.md. */
function free_port(): int
{
    static $held = [];
    do {
        $port = 11000 + random_int(0, 9999);
        $holds = @stream_socket_server("udp://127.0.0.1:$port", flags: \STREAM_SERVER_BIND);
        $listens = $holds ? @stream_socket_server("tcp://127.0.0.1:$port") : false;
    } while (false === $listens);
    fclose($listens);
    $held[] = $holds;

    return $port;
}

function reaches(Redis $redis, int $port): bool
{
    try {
        return $redis->connect('127.0.0.1', $port);
    } catch (RedisException) {
        return false;
    }
}

/**
 * Carries out each task in a process of its own while a server hangs, and checks that each task throws within its limit.
 *
 * @param list<array{callable, float}> $prepare for each task a function that is called with the port and its number before the server hangs
 *                                              and returns the task, and the limit in seconds
 */
function hanging(string $name, array $prepare, bool $isCluster = false): void
{
    [$server, $port] = started(isCluster: $isCluster);
    $running = [];
    foreach ($prepare as $number => [$make, $limit]) {
        $running[] = elsewhere(function () use ($name, $make, $limit, $number, $port) {
            $task = $make($port, $number);
            connected()->rPush("$name:ready", $number);
            until('the server hangs', fn () => connected()->exists("$name:hangs"));
            $began = microtime(true);
            try {
                $task();
            } catch (Exception) {
                $took = microtime(true) - $began;
                check($took < $limit + Dlock\Driver::CLEANUP + LATE, "task $number: $took s of $limit s");

                return true;
            }
            throw new Exception("task $number has an answer");
        });
    }
    until('all are ready', fn () => connected()->lLen("$name:ready") === count($running));
    posix_kill(proc_get_status($server)['pid'], \SIGSTOP);
    connected()->set("$name:hangs", '', ['EX' => 60]);
    $right = array_map('succeeds', $running);
    proc_terminate($server, \SIGKILL);
    check(!in_array(false, $right, true), 'all keep their limits');
}

/**
 * Waits for a lock in a process whose signal handler throws. The signal comes once during the wait, and once with the grant.
 * Checks that nothing stays held, and that the next command gets its own reply.
 *
 * @param callable(): (\Redis|\Predis\ClientInterface) $client
 */
function interrupted(string $name, callable $client): void
{
    foreach (['the wait', 'the grant'] as $moment) {
        connected()->rawCommand('DLOCK.ACQUIRE', $name, 'holder', 'PX', '60000');
        $pid = elsewhere(function () use ($client, $name) {
            pcntl_async_signals(true);
            pcntl_signal(\SIGUSR1, fn () => throw new DomainException('the signal'));
            $redis = $client();
            $store = new Dlock\DlockStore($redis, 600);
            $key = new Symfony\Component\Lock\Key($name);
            throws(Exception::class, fn () => $store->waitAndSave($key));
            check(!$store->exists($key) && 'in step' === $redis->echo('in step'), 'nothing is claimed');
            until('it is free', fn () => 0 === connected()->exists($name));

            return true;
        });
        until('it waits', fn () => 1 === Dlock\Driver::field(connected()->rawCommand('DLOCK.INFO', $name), 'waiters'));
        posix_kill($pid, 'the wait' === $moment ? \SIGUSR1 : \SIGSTOP);
        connected()->rawCommand('DLOCK.RELEASE', $name, 'holder');
        'the wait' === $moment || posix_kill($pid, \SIGUSR1);
        posix_kill($pid, \SIGCONT);
        check(succeeds($pid), $moment);
    }
}
