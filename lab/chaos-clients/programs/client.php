<?php

/** The program of chaos with the store for Symfony (README.md), with one worker: php client.php DlockStore.php */

declare(strict_types=1);

use Dlock\DlockStore;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;

require 'Symfony/Component/Lock/autoload.php';
require $argv[1];

function micros(): int
{
    return intdiv(hrtime(true), 1000);
}

/** Asks a key what it says of itself, between two times. The store has no listener: a lost key has expired. */
function claim(Key $key): array
{
    $before = micros();
    $remaining = $key->getRemainingLifetime() ?? 0.0;

    return ['at' => [$before, micros()], 'remaining' => max(0.0, $remaining * 1000), 'lost' => $remaining <= 0];
}

function connected(array $request): Redis
{
    static $clients = [];
    $redis = $clients[$request['db']] ??= new Redis();
    if (!$redis->isConnected()) {
        $redis->connect('127.0.0.1', $request['ports'][0], 1.0, null, 0, 2.0);
        $redis->select($request['db']);
    }

    return $redis;
}

function acquired(array $request, ?DlockStore &$store, ?Key &$key): array
{
    $wait = $request['wait'] > 0 ? $request['wait'] / 1000 : null;
    $store = new DlockStore(connected($request), $request['lease'] / 1000, $wait);
    $key = new Key($request['name']);
    try {
        if ('read' === $request['mode']) {
            null === $wait ? $store->saveRead($key) : $store->waitAndSaveRead($key);
        } else {
            null === $wait ? $store->save($key) : $store->waitAndSave($key);
        }
    } catch (LockConflictedException) {
        return ['result' => 'refused'];
    }

    return ['result' => 'granted', 'token' => DlockStore::fencingToken($key)] + claim($key);
}

echo json_encode(['features' => ['sequential']]), "\n";
$store = $key = null;
while (false !== $line = fgets(STDIN)) {
    $request = json_decode($line, true);
    $reply = ['at' => [micros(), micros()]];
    try {
        if ('acquire' === $request['do']) {
            $reply = acquired($request, $store, $key);
        } else {
            $reply = ['result' => 'held'] + claim($key);
            if ('release' === $request['do']) {
                $store->delete($key);
                $reply['result'] = 'released';
            }
        }
    } catch (Exception $e) {
        $result = 'acquire' === $request['do'] ? 'unreachable' : 'failed';
        $reply = ['result' => $result, 'message' => $e->getMessage()] + $reply;
    }
    echo json_encode(['id' => $request['id']] + $reply), "\n";
}
