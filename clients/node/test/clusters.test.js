import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';

import { DLock, NotGranted } from 'redis-dlock';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';

import { PATIENT, clientsOf, lookAt, refused, settles, sleep, until, untilWaiting, wire } from './fixture.js';
import { CLUSTERS, cluster, clusterWithReplica, nodeOfCluster, sentinels, start } from './servers.js';

/** Whether a connection waits that has these fields. */
function isBlocked(list, ...fields) {
  const lines = list.split('\n').filter((line) => / flags=\w*b/.test(line));
  return lines.some((line) => fields.every((field) => line.includes(field)));
}

describe('cluster', () => {
  let servers;
  before(async () => (servers = await cluster()));

  for (const [kind, open] of Object.entries(CLUSTERS)) {
    test(`${kind}: locks are where their keys are, and follow them`, async () => {
      const { client, close } = await open(servers.ports);
      after(close);
      const dlock = new DLock(client, PATIENT);
      const listeners = client.listenerCount?.('+node');
      assert(new DLock(client));
      assert.equal(client.listenerCount?.('+node'), listeners, 'each lock object adds a listener to the client');
      for (const name of ['a', 'b', 'c', 'd']) {
        const key = `${kind}:${name}`;
        const run = (...command) => servers.on(key, ...command);
        for (const session of [false, true]) {
          const holder = await dlock.acquire(key, { session });
          assert.equal((await lookAt(run, key)).token, holder.token);
          await assert.rejects(dlock.acquire(key, { session, wait: 0 }), NotGranted);
          const waiting = dlock.acquire(key, { session });
          await untilWaiting(run, key, 1);
          await holder.extend();
          assert.equal(await holder.release(), true);
          const next = await waiting;
          assert(next.token > holder.token);
          assert.equal(await next.release(), true);
        }
        // The client's map of the cluster is wrong now.
        await servers.move(key);
        const moved = await dlock.acquire(key, { wait: 10_000 });
        assert.equal((await lookAt(run, key)).token, moved.token);
        await moved.release();
        await servers.move(key);
        const session = await dlock.acquire(key, { wait: 10_000, session: true });
        assert.equal((await lookAt(run, key)).token, session.token);
        await session.release();
      }
    });

    test(`${kind}: the release of a lost lock says so, even if its key has moved`, async () => {
      const { client, close } = await open(servers.ports);
      after(close);
      const dlock = new DLock(client, PATIENT);
      for (const isLost of [true, false]) {
        const key = `${kind}:moves:${isLost}`;
        const lock = await dlock.acquire(key, { lease: 300_000 });
        await servers.move(key);
        if (isLost) await servers.on(key, 'DEL', key);
        assert.equal(await lock.release(), !isLost);
      }
    });
  }
});

const LOSERS = {
  ...CLUSTERS,
  'ioredis whose nodes connect again': async ([port]) => {
    const client = new Cluster([{ host: '127.0.0.1', port }], { clusterNodeRetryStrategy: () => 20 });
    client.on('error', () => {});
    await new Promise((resolve) => client.once('ready', resolve));
    return { client, close: () => client.disconnect() };
  },
};
for (const [kind, open] of Object.entries(LOSERS)) {
  test(`${kind}: a release whose reply a node of a cluster loses has released the lock`, async () => {
    const server = await start({ options: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] });
    const line = await wire(server.port);
    await server.run('CONFIG', 'SET', 'cluster-announce-port', String(line.port));
    await server.run('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
    await until('all slots are served', async () => (await server.run('CLUSTER', 'INFO')).includes('state:ok'));
    const { client, close } = await open([line.port]);
    after(close);
    const lock = await new DLock(client, PATIENT).acquire('job', { lease: 300_000 });
    line.lose('DLOCK.RELEASE');
    assert.equal(await lock.release(), true);
    assert.equal(line.lost(), 1);
    await server.stop();
  });
}

test('waits run as the user that the client of a cluster is logged in as', async () => {
  const { ports, nodes, on } = await cluster();
  for (const { run } of nodes) await run('ACL', 'SETUSER', 'app', 'reset', 'on', '>one', '~*', '+@all');
  const { client, close } = await CLUSTERS.ioredis(ports);
  after(close);
  const dlock = new DLock(client, PATIENT);
  for (const node of client.nodes('master')) await node.auth('app', 'one');
  for (const key of ['a', 'b', 'c', 'd']) {
    const holder = await dlock.acquire(key);
    const waiting = dlock.acquire(key, { wait: 30_000 });
    waiting.catch(() => {});
    await until('it waits', async () => isBlocked(await on(key, 'CLIENT', 'LIST'), ' user=app '));
    await holder.release();
    await (await waiting).release();
  }
});

/** Opens a client that reaches the server at `port` through a relay, whose address is `there`. `map` leads to it. */
const THROUGH = {
  'ioredis, cluster': async (port, there, map) => {
    const client = new Cluster([there], { natMap: map });
    await new Promise((resolve) => client.once('ready', resolve));
    return { client, close: () => client.disconnect() };
  },
  'node-redis, cluster': async (port, there, map) => {
    const client = createCluster({ rootNodes: [{ socket: there }], nodeAddressMap: map });
    await client.connect();
    return { client, close: () => client.destroy() };
  },
  'ioredis, Sentinel': async (port, there, map) => {
    const client = new Redis({ name: 'main', sentinels: [await watcherOf(port)], natMap: map });
    await client.ping();
    return { client, close: () => client.disconnect() };
  },
  'node-redis, Sentinel': async (port, there, map) => {
    const client = createSentinel({ name: 'main', sentinelRootNodes: [await watcherOf(port)], nodeAddressMap: map });
    await client.connect();
    return { client, close: () => client.destroy() };
  },
};

/** Starts a sentinel of the server at this port. Returns its address. */
async function watcherOf(port) {
  const sentinel = await start({ sentinel: `sentinel monitor main 127.0.0.1 ${port} 1\n` });
  return { host: '127.0.0.1', port: sentinel.port };
}

for (const [way, open] of Object.entries(THROUGH)) {
  test(`${way}: a request of a session that arrives after its connection has ended releases no lock`, async () => {
    const server = way.endsWith('cluster') ? await nodeOfCluster() : await start();
    const line = await wire(server.port);
    const there = { host: '127.0.0.1', port: line.port };
    const { client, close } = await open(server.port, there, { [`127.0.0.1:${server.port}`]: there });
    client.on('error', () => {});
    after(close);
    line.keep('SESSION');
    const acquiring = new DLock(client, PATIENT).acquire('job', { session: true, lease: 60_000 });
    await until('the request is on its way', () => line.kept() > 0);
    line.drop();
    const lock = await acquiring;
    const calls = async () => /cmdstat_dlock.acquire:calls=(\d+)/.exec(await server.run('INFO', 'commandstats'))[1];
    const before = await calls();
    line.deliver();
    await until('the late one has arrived', async () => (await calls()) > before);
    await sleep(300);
    assert.equal((await lookAt(server.run, 'job'))?.token, lock.token);
    assert(!lock.signal.aborted);
    assert.equal(await lock.release(), true);
    await server.stop();
  });
}

describe('a node of a cluster', { concurrency: 4 }, () => {
  for (const [kind, open] of Object.entries(CLUSTERS)) {
    for (const end of ['stop', 'freeze']) {
      test(`${kind}: locks outlive the failover after ${end}`, async () => {
        const { ports, primary, replica, key, taken } = await clusterWithReplica();
        const { client, close } = await open(ports);
        after(close);
        const dlock = new DLock(client, PATIENT);
        const other = `{${key}}:other`;
        const session = await dlock.acquire(other, { session: true, lease: 40_000 });
        await dlock.using(key, { lease: 40_000 }, async (signal, lock) => {
          const waiting = dlock.acquire(key);
          await untilWaiting(primary.run, key, 1);
          for (const { token } of [lock, session]) {
            const name = token === lock.token ? key : other;
            await until('it is replicated', async () => (await lookAt(replica.run, name))?.token === token);
          }
          await primary[end]();
          await taken(key);
          const renewed = until('it is renewed', () => lock.extend().then(() => true, () => false));
          await settles(renewed, 3000, 'node-redis itself asks for the new primary after 5 s');
          assert((await lookAt(replica.run, key)).ttl > 20_000);
          await untilWaiting(replica.run, key, 1);
          await until('it is bound', async () => (await clientsOf(replica.run, other, 'holds', 'session'))[0] !== null);
          waiting.then((next) => next.release());
          assert.equal(signal.aborted, false);
        });
        assert.equal(session.signal.aborted, false);
        assert.equal(await session.release(), true);
        await until('all is free', async () => (await lookAt(replica.run, key)) === null);
      });
    }
  }
});

const SENTINELS = {
  ioredis: async (port) => {
    const client = new Redis({ sentinels: [{ host: '127.0.0.1', port }], name: 'main', retryStrategy: () => 50 });
    client.on('error', () => {});
    return { client, close: () => client.disconnect() };
  },
  'node-redis': async (port) => {
    const sentinelRootNodes = [{ host: '127.0.0.1', port }];
    const client = createSentinel({ name: 'main', sentinelRootNodes, scanInterval: 100 });
    client.on('error', () => {});
    await client.connect();
    return { client, close: () => client.destroy() };
  },
};

describe('sentinel', { concurrency: 3 }, () => {
  test('node-redis: a release that the client sends again has released the lock', async () => {
    const { port } = await start();
    const client = await createClient({ socket: { host: '127.0.0.1', port } }).connect();
    after(() => client.destroy());
    /** Sends each command again, as a client of Sentinel does if its connection ends before the reply comes. */
    const sentinel = {
      isOpen: true,
      getMasterNode: () => ({ host: '127.0.0.1', port }),
      async _execute(isReadonly, send) {
        await send(client);
        return send(client);
      },
      sendCommand: (isReadonly, args) => sentinel._execute(isReadonly, (each) => each.sendCommand(args)),
    };
    const lock = await new DLock(sentinel, PATIENT).acquire('job', { lease: 60_000 });
    assert.equal(await lock.release(), true);
  });

  test('node-redis: a release that the client sends again only after refusals tells the loss', async () => {
    const [one, two] = await Promise.all([start(), start()]);
    const clients = await Promise.all(
      [one, two].map(({ port }) => createClient({ socket: { host: '127.0.0.1', port } }).connect()),
    );
    after(() => clients.forEach((client) => client.destroy()));
    /** Looks for the primary again after a READONLY, as a client of Sentinel does. */
    const sentinel = {
      isOpen: true,
      getMasterNode: () => ({ host: '127.0.0.1', port: clients.length > 1 ? one.port : two.port }),
      _execute: (isReadonly, send) =>
        send(clients[0]).catch((error) => {
          assert.match(error.message, /^READONLY /);
          clients.shift().destroy();
          return send(clients[0]);
        }),
      sendCommand: (isReadonly, args) => sentinel._execute(isReadonly, (each) => each.sendCommand(args)),
    };
    const lock = await new DLock(sentinel, PATIENT).acquire('job', { lease: 60_000 });
    await one.run('REPLICAOF', '127.0.0.1', String(two.port));
    assert.equal(await lock.release(), false);
  });

  test('ioredis: a sentinel that hangs is passed over', async () => {
    const { port } = await sentinels();
    const silent = net.createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { client, close } = await SENTINELS.ioredis(port);
    after(() => close() || silent.close());
    await client.ping();
    client.options.sentinels.unshift({ host: '127.0.0.1', port: silent.address().port });
    const lock = await new DLock(client, PATIENT).acquire('job', { session: true, wait: 60_000 });
    assert.equal(await lock.release(), true);
  });

  test('waits use the database and the user of a client of Sentinel', async () => {
    const { port, primary } = await sentinels();
    await primary.run('ACL', 'SETUSER', 'app', 'reset', 'on', '>one', '~*', '+@all');
    const sentinel = { host: '127.0.0.1', port };
    const one = new Redis({ name: 'main', sentinels: [sentinel] });
    await one.select(6);
    const two = createSentinel({ name: 'main', sentinelRootNodes: [sentinel], nodeClientOptions: { database: 6 } });
    await two.connect();
    after(() => one.disconnect() || two.destroy());
    const dlocks = [new DLock(one), new DLock(two)];
    await one.auth('app', 'one');
    const holder = await dlocks[0].acquire('job');
    for (const dlock of dlocks) await refused(() => dlock.acquire('job', { wait: 1000 }));
    const waiting = dlocks[0].acquire('job', { wait: 30_000 });
    await until('it waits', async () => isBlocked(await primary.run('CLIENT', 'LIST'), ' db=6 ', ' user=app '));
    await holder.release();
    await (await waiting).release();
  });

  for (const [kind, open] of Object.entries(SENTINELS)) {
    test(`${kind}: locks are on the primary, and a wait goes on after a failover`, async () => {
      const { port, primary, replica, failover } = await sentinels();
      const { client, close } = await open(port);
      after(close);
      const dlock = new DLock(client, PATIENT);
      const holder = await dlock.acquire('job', { lease: 60_000 });
      assert.equal((await lookAt(primary.run, 'job')).token, holder.token);
      const session = await dlock.acquire('session', { session: true, lease: 60_000 });
      const waiting = dlock.acquire('job', { wait: 60_000 });
      await untilWaiting(primary.run, 'job', 1);
      await until('the replica has the lock', async () => (await lookAt(replica.run, 'job'))?.token === holder.token);

      await failover();
      await until('the session is bound to a connection to the new primary', async () => {
        const [bound] = await clientsOf(replica.run, 'session', 'holds', 'session');
        return bound !== null;
      });
      await untilWaiting(replica.run, 'job', 1);
      await until('the holder is released', () => holder.release().catch(() => false));
      const next = await waiting;
      assert.equal((await lookAt(replica.run, 'job')).token, next.token);
      assert(next.token > holder.token);
      assert.equal(await next.release(), true);
      assert.equal(session.signal.aborted, false);
      assert.equal(await session.release(), true);
    });
  }
});
