<?php

/** Checks what an error of a server means to the classes of this package, by tests/clients/tables/replies.txt. */

declare(strict_types=1);

use Dlock\Driver;
use Dlock\ServerError;

require 'Symfony/Component/Lock/autoload.php';
require __DIR__.'/kit.php';
require __DIR__.'/../src/DlockStore.php';

/** Starts a server that answers each command of the module with the error. Returns its process and its port. */
function answering(string $error): array
{
    $listener = stream_socket_server('tcp://127.0.0.1:0');
    $port = (int) substr(strrchr(stream_socket_get_name($listener, false), ':'), 1);
    $pid = elsewhere(function () use ($listener, $error) {
        for ($clients = []; ; ) {
            $ready = [$listener, ...$clients];
            $none = null;
            stream_select($ready, $none, $none, 60);
            foreach ($ready as $each) {
                if ($each === $listener) {
                    $clients[] = stream_socket_accept($listener);
                } elseif ('' === $command = (string) fread($each, 65536)) {
                    unset($clients[array_search($each, $clients, true)]);
                } else {
                    fwrite($each, str_contains($command, 'DLOCK.') ? "-$error\r\n" : "+OK\r\n");
                }
            }
        }
    });
    fclose($listener);

    return [$pid, $port];
}

/** Sends a command, and returns in a word what the store makes of the answer. */
function meaning(Redis|Predis\Client $client): string
{
    try {
        return Driver::FOREIGN === Driver::of($client)->call('DLOCK.ACQUIRE', 'job', ['owner', 'PX', 1000]) ? 'foreign' : '?';
    } catch (ServerError $e) {
        return match (true) {
            str_starts_with($e->getMessage(), 'DEADLOCK ') => 'deadlock',
            str_contains($e->getMessage(), 'is the dlock module loaded') => 'module',
            default => 'refused',
        };
    } catch (Exception $e) {
        return Driver::isUnanswered($e) ? 'unanswered' : throw $e;
    }
}

/**
 * The outcomes that are right for each meaning in the table. A store repeats no command within a call. If a command was
 * not executed, the store reports the error of the server, or no answer; after no answer, it undoes a hold that may
 * exist. If a command may have been executed, the store must report no answer.
 */
const MEANINGS = [
    'elsewhere' => ['unanswered', 'refused'],
    'open' => ['unanswered'],
    'paused' => ['unanswered'],
    'foreign' => ['foreign'],
    'session' => ['refused'],
    'deadlock' => ['deadlock'],
    'module' => ['module'],
    'final' => ['refused'],
];

$failed = 0;
preg_match_all('/^"(.*)" => (.*)$/m', file_get_contents(__DIR__.'/../../../tests/clients/tables/replies.txt'), $rows, \PREG_SET_ORDER);
check(\count($rows) > 20, 'the table is read');
foreach ($rows as [$row, $reply, $expected]) {
    [$pid, $port] = answering($reply);
    foreach (clients($port) as $kind => $client) {
        $told = meaning($client);
        if (!\in_array($told, MEANINGS[$expected], true)) {
            echo "FAILED: $kind: $row: $told\n";
            ++$failed;
        }
    }
    posix_kill($pid, \SIGKILL);
    pcntl_waitpid($pid, $status);
}
/** A driver whose first command throws, as if a signal handler had thrown. */
$driver = new class() extends Driver {
    public int $calls = 0;

    public function isBusy(): bool
    {
        return false;
    }

    public function server(): string
    {
        return '';
    }

    protected function send(string $command, string $key, array $arguments, bool $waits): mixed
    {
        return 1 === ++$this->calls ? throw new DomainException('the signal') : 1;
    }

    protected function limit(): float
    {
        return 1;
    }

    protected function setLimit(float $seconds): void
    {
    }
};
$debts = new Dlock\Debts($driver);
$debts->owe('job', ['owner', 'ALL'], \INF);
throws(DomainException::class, fn () => $debts->repay());
$debts->repay();
$debts->repay();
check(2 === $driver->calls, 'a release that a signal handler interrupted is sent again, and only once');

echo $failed ? '' : "ok: an error of a server means what the table says\n";
exit($failed ? 1 : 0);
