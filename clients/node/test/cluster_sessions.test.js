/** A `Session` in a cluster sends heartbeats to each node that has locks of the session. */

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { DLock, LockLost, NoAnswer } from 'redis-dlock';

import { PATIENT, clientsOf, lookAt, openSession, reasonOf, settles, sleep, until } from './fixture.js';
import { CLUSTERS, cluster, clusterWithReplica } from './servers.js';

/** Returns how many calls of a `DLOCK` command a server has counted. */
async function calls(run, name) {
  const stats = await run('INFO', 'commandstats');
  return Number(new RegExp(`cmdstat_dlock\\.${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}

/** Returns the session to which the hold of a key is bound: null if it is unbound, or if there is no hold. */
async function sessionOf(run, key) {
  return (await lookAt(run, key)) && (await clientsOf(run, key, 'holds', 'session'))[0];
}

/** Returns that many names, whose slots are spread over the nodes. */
const names = (number) => Array.from({ length: number }, (_, at) => `job:${at}`);

async function opened(ports, open, options) {
  const { client, close } = await open(ports);
  after(close);
  const session = await openSession(client, options);
  return { session, dlock: new DLock(client, { ...PATIENT, session }) };
}

describe('a session in a cluster', { concurrency: 2 }, () => {
  for (const [kind, open] of Object.entries(CLUSTERS)) {
    test(`${kind}: one heartbeat for each node keeps all locks`, async () => {
      const { ports, nodes, on } = await cluster();
      const { session, dlock } = await opened(ports, open, { timeout: 12_000 });
      const locks = await Promise.all(names(40).map((name) => dlock.acquire(name)));
      const both = await dlock.acquireAll(['{b}1', '{b}2'], { lease: 60_000 });
      const ids = new Set();
      for (const name of names(40)) ids.add(await sessionOf((...words) => on(name, ...words), name));
      assert.equal(ids.size, 2, 'each node has a session of its own');
      for (const { run } of nodes) await run('CONFIG', 'RESETSTAT');
      const began = performance.now();
      for (const { run } of nodes) {
        await until('two heartbeats have come', async () => (await calls(run, 'session')) >= 2);
        const beats = await calls(run, 'session');
        // A heartbeat is due every 4 s. On a busy machine, some come late and are repeated: five more are allowed.
        const most = (performance.now() - began) / 4000 + 5;
        assert(beats <= most, `${beats} heartbeats`);
        assert.equal(await calls(run, 'renew'), 0);
      }
      for (const lock of [...locks, both]) assert(!lock.signal.aborted && lock.remaining > 0);
      assert.equal(await both.release(), true);
      await session.close();
      for (const name of names(40)) assert.equal(await on(name, 'DLOCK.INFO', name), null, name);
      for (const lock of locks) assert(lock.signal.reason instanceof LockLost);
      await Promise.all(nodes.map(({ stop }) => stop()));
    });

    test(`${kind}: a lock whose slot moves is bound on the other node`, async () => {
      const { ports, nodes, on, move } = await cluster();
      const { session, dlock } = await opened(ports, open, { timeout: 9000 });
      const run = (...words) => on('moves', ...words);
      const moved = await dlock.acquire('moves');
      const others = await Promise.all(names(10).map((name) => dlock.acquire(name)));
      for (let round = 0; round < 2; round += 1) {
        await move('moves');
        assert.equal(await sessionOf(run, 'moves'), null, 'the node that gets the slot has the hold, but unbound');
        await until('the hold is bound on that node', async () => {
          moved.signal.throwIfAborted();
          return (await sessionOf(run, 'moves')) !== null;
        });
        assert.equal((await lookAt(run, 'moves')).token, moved.token);
        await sleep(9500); // longer than the timeout of the session
        assert(!moved.signal.aborted && moved.remaining > 0);
      }
      // The session has no lock in this slot, so that the client may still take the old node for its node.
      await move('new');
      const fresh = await dlock.acquire('new', { wait: 60_000 });
      for (const lock of [moved, fresh, ...others]) assert.equal(await lock.release(), true);
      assert(session.isOpen);
      await session.close();
      await Promise.all(nodes.map(({ stop }) => stop()));
    });

    test(`${kind}: a node without locks gets no heartbeats, and may fail`, async () => {
      const { ports, nodes, on } = await cluster();
      const { session, dlock } = await opened(ports, open, { timeout: 6000 });
      const kept = await dlock.acquire('kept');
      const used = (name) => dlock.acquire(name).then((lock) => lock.release());
      await Promise.all(names(10).map(used));
      const isFirst = (await nodes[0].run('DBSIZE')) === 1;
      const idle = nodes[isFirst ? 1 : 0];
      const count = async () => /dlock_named_sessions:(\d+)/.exec(await idle.run('INFO', 'dlock'))[1];
      await until('the session is closed on the idle node', async () => (await count()) === '0');
      await idle.run('CONFIG', 'RESETSTAT');
      await sleep(2500); // longer than a third of the timeout, after which a heartbeat is due
      assert.equal(await calls(idle.run, 'session'), 0);
      idle.freeze();
      await sleep(2000);
      idle.thaw();
      assert(!kept.signal.aborted && session.isOpen && !session.lost.aborted);
      assert.equal((await lookAt((...words) => on('kept', ...words), 'kept')).token, kept.token);
      await session.close();
      await Promise.all(nodes.map(({ stop }) => stop()));
    });

    test(`${kind}: a node that hangs for longer than the timeout costs its own locks only`, async () => {
      const { ports, nodes, on, indexOf } = await cluster();
      const { session, dlock } = await opened(ports, open, { timeout: 6000 });
      const locks = await Promise.all(names(20).map(async (name) => [await indexOf(name), await dlock.acquire(name)]));
      const [gone, kept] = [1, 0].map((at) => locks.filter(([node]) => node === at).map(([, lock]) => lock));
      assert(gone.length > 0 && kept.length > 0);
      nodes[1].freeze();
      await settles(Promise.all(gone.map(({ signal }) => reasonOf(signal))), 6250, 'the locks are lost');
      await assert.rejects(dlock.acquire(gone[0].resource, { wait: 500 }), NoAnswer);
      assert(kept.every(({ signal }) => !signal.aborted) && session.isOpen && !session.lost.aborted);
      nodes[1].thaw();
      const again = await dlock.acquire(gone[0].resource, { wait: 60_000 });
      assert.notEqual(await sessionOf((...words) => on(again.resource, ...words), again.resource), null);
      await session.close();
      await Promise.all(nodes.map(({ stop }) => stop()));
    });

    test(`${kind}: a session begins on the next primary`, async () => {
      const { ports, nodes, primary, replica, key, taken, indexOf } = await clusterWithReplica();
      let { session, dlock } = await opened(ports, open, { timeout: 40_000 });
      // A session first opens on the node that its own id maps to. Node 0, the primary, must not have this session yet.
      while ((await indexOf(session.id)) === 0) {
        await session.close();
        ({ session, dlock } = await opened(ports, open, { timeout: 40_000 }));
      }
      await replica.run('READWRITE');
      await until('the old primary is a replica', async () => {
        // The cluster undoes a takeover whose epoch another node has already. It is then repeated.
        if ((await replica.run('ROLE'))[0] === 'slave') await replica.run('CLUSTER', 'FAILOVER', 'TAKEOVER');
        return (await primary.run('ROLE'))[0] === 'slave';
      });
      await taken(key);
      const lock = await dlock.acquire(key, { wait: 0 });
      assert.notEqual(await sessionOf(replica.run, key), null);
      await lock.release();
      await session.close();
      await Promise.all(nodes.map(({ stop }) => stop()));
    });

    for (const end of ['stop', 'freeze']) {
      test(`${kind}: locks are bound on the next primary after ${end}`, async () => {
        const { ports, nodes, primary, replica, key, taken, indexOf } = await clusterWithReplica();
        const { session, dlock } = await opened(ports, open, { timeout: 40_000 });
        const locks = await Promise.all(names(40).map(async (name) => [await indexOf(name), await dlock.acquire(name)]));
        const there = locks.filter(([node]) => node === 0).map(([, lock]) => lock);
        assert(there.some(({ resource }) => resource === key));
        await until('the replica has all locks', async () => (await replica.run('DBSIZE')) === there.length);
        await replica.run('READWRITE');
        await primary[end]();
        await taken(key);
        for (const { resource, token } of there) {
          await until(`${resource} is bound`, async () => (await sessionOf(replica.run, resource)) !== null);
          assert.equal((await lookAt(replica.run, resource)).token, token);
        }
        assert(locks.every(([, { signal }]) => !signal.aborted) && session.isOpen);
        const results = await Promise.all(locks.map(([, lock]) => lock.release()));
        assert.deepEqual(new Set(results), new Set([true]));
        await session.close();
        await Promise.all(nodes.map(({ stop }) => stop()));
      });
    }
  }
});
