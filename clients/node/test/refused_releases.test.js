/** Releases of lost locks of which no copy is executed, until one finds nothing: the lock is told as lost. */

import assert from 'node:assert/strict';

import { Redis } from 'ioredis';
import { DLock } from 'redis-dlock';

import { PATIENT, test, until, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** Loses the lock on its server, without a word to its client, and gives it to another owner. */
async function lose(server, key = 'job') {
  assert.equal(await server.run('DEL', key), 1);
  assert.equal(typeof (await server.run('DLOCK.ACQUIRE', key, 'other', 'PX', '300000')), 'number');
}

/** Makes a server refuse all writes with READONLY. */
const demote = (server) => server.run('REPLICAOF', '127.0.0.1', '1');
const promote = (server) => server.run('REPLICAOF', 'NO', 'ONE');

/** Breaks the connection of a client, and waits until the client has noticed that. */
async function cut(line, client) {
  const noticed = new Promise((resolve) => client.once('reconnecting', resolve));
  line.cut();
  await noticed;
}

/** Lets only the client reach the server, and no connection of the package's own. */
function leaveAlone(client) {
  client.duplicate = () => new Redis({ host: '127.0.0.1', port: 1, lazyConnect: true, retryStrategy: null });
}

/** Waits until the server has refused a release with READONLY. */
const untilRefused = (server) =>
  until('a release is refused', async () => /errorstat_READONLY:/.test(await server.run('INFO', 'errorstats')));

withEachClient(({ kind, open }) => {
  test('refused, and then the client connects again', async () => {
    for (const keys of [['job'], ['job', 'other']]) {
      const server = await start();
      const client = await open({ at: server.port });
      const id = await (kind === 'ioredis' ? client.call('CLIENT', 'ID') : client.sendCommand(['CLIENT', 'ID']));
      const lock = await new DLock(client, PATIENT).acquireAll(keys, { lease: 300_000 });
      for (const key of keys) await lose(server, key);
      await demote(server);
      const releasing = lock.release();
      await untilRefused(server);
      // The connections of the package's own stay: on one of them, a copy of the release may have no answer yet.
      const again = new Promise((resolve) => client.once('ready', resolve));
      await server.run('CLIENT', 'KILL', 'ID', String(id));
      await again;
      await promote(server);
      assert.equal(await releasing, false, String(keys));
      await server.stop();
    }
  });

  test('several, on the connection of their session and on others', async () => {
    for (const way of [{}, { session: true }]) {
      const server = await start();
      const dlock = new DLock(await open({ at: server.port }), PATIENT);
      const lock = await dlock.acquireAll(['job', 'other'], { lease: 300_000, ...way });
      for (const key of ['job', 'other']) await lose(server, key);
      await demote(server);
      const releasing = lock.release();
      await untilRefused(server);
      await promote(server);
      assert.equal(await releasing, false, JSON.stringify(way));
      await server.stop();
    }
  });

  test('not sent, because the client has selected another database', async () => {
    const server = await start();
    const client = await open({ at: server.port });
    const dlock = new DLock(client, PATIENT);
    for (const isLost of [true, false]) {
      await client.select(0);
      const lock = await dlock.acquire('job', { lease: 300_000 });
      if (isLost) await lose(server);
      await client.select(7);
      assert.equal(await lock.release(), !isLost);
      await server.run('DEL', 'job');
    }
    await server.stop();
  });

  test('not sent, because the client is not connected and keeps no commands', async () => {
    const server = await start();
    const line = await wire(server.port);
    const keepsNone = kind === 'ioredis' ? { enableOfflineQueue: false } : { disableOfflineQueue: true };
    const client = await open({ at: line.port, ...keepsNone });
    const lock = await new DLock(client, PATIENT).acquire('job', { lease: 300_000 });
    await lose(server);
    await cut(line, client);
    assert.equal(await lock.release(), false);
    await server.stop();
  });

  if (kind === 'ioredis') {
    test('kept by the client until it is connected, and then sent once', async () => {
      const server = await start();
      const line = await wire(server.port);
      const client = await open({ at: line.port, retryStrategy: () => 100 });
      const lock = await new DLock(client, PATIENT).acquire('job', { lease: 300_000 });
      await lose(server);
      leaveAlone(client);
      await cut(line, client);
      assert.equal(await lock.release(), false);
      await server.stop();
    });

    test('repeated by the client itself after a refusal', async () => {
      const server = await start();
      const client = await open({ at: server.port, reconnectOnError: () => 2 });
      const lock = await new DLock(client, PATIENT).acquire('job', { lease: 300_000 });
      await lose(server);
      await demote(server);
      leaveAlone(client);
      const releasing = lock.release();
      await untilRefused(server);
      await promote(server);
      assert.equal(await releasing, false);
      await server.stop();
    });
  }
});
