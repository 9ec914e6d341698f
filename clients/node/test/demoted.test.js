/** A server that becomes a replica while a lock of it is acquired, kept or released: its answers do not count. */

import assert from 'node:assert/strict';

import { DLock, NoAnswer } from 'redis-dlock';

import { PATIENT, lookAt, settles, test, until, untilWaiting, wire, withEachClient } from './fixture.js';
import { primaryAndReplica, start } from './servers.js';

/** How much later than allowed a promise may settle, in ms: measuring is not exact. */
const LATE = 50;
/** The errors that a server answers once it is a replica. */
const NO_PRIMARY = /READONLY|WAIT cannot be used|UNBLOCKED/;

/** Asserts that an error is a NoAnswer, and that an error of a replica is among its causes. */
const isNoAnswer = (error) => {
  assert(error instanceof NoAnswer, String(error));
  const causes = [];
  for (let { cause } = error; cause; { cause } = cause) causes.push(String(cause));
  assert.match(causes.join('\n'), NO_PRIMARY);
  return true;
};

/** Makes the replica the primary, and the primary its replica. */
async function swap({ primary, replica }) {
  await replica.run('REPLICAOF', 'NO', 'ONE');
  await primary.run('REPLICAOF', '127.0.0.1', String(replica.port));
}

withEachClient(({ open }) => {
  /** Starts a primary and a replica, whose roles `demote` swaps while a command with the word is on its way. */
  async function serversToSwap(word, options) {
    const servers = await primaryAndReplica();
    const line = await wire(servers.primary.port);
    const dlock = new DLock(await open({ at: line.port }), { replicas: 1, ...PATIENT, ...options });
    return {
      ...servers,
      line,
      dlock,
      /** Swaps the roles. `leads`: new connections lead to the new primary. */
      async demote(leads) {
        await until(`${word} is on its way`, () => line.kept() > 0);
        await until('the replica has the grant', async () => (await lookAt(servers.replica.run, 'job')) !== null);
        await swap(servers);
        if (leads) line.lead(servers.replica.port);
        line.deliver();
      },
      stop: () => Promise.all([servers.primary.stop(), servers.replica.stop()]),
    };
  }

  for (const [word, waits] of [['WAIT', false], ['WAIT', true], ['DLOCK.RENEW', true]]) {
    const what = `${word} after a grant ${waits ? 'to a wait' : 'at once'}`;

    /** Asks for the lock. `line` keeps the first command with the word after the grant back. */
    async function asking({ line, dlock, primary }, options) {
      const holder = waits && (await dlock.acquire('job', { replicas: 0 }));
      if (!waits) line.keep(word);
      const acquiring = dlock.acquire('job', options);
      acquiring.catch(() => {});
      if (!holder) return acquiring;
      await untilWaiting(primary.run, 'job', 1);
      line.keep(word);
      await holder.release();
      return acquiring;
    }

    test(`a lock is acquired from the new primary: ${what}`, async () => {
      for (const options of [{}, { wait: 60_000, session: true }]) {
        const at = await serversToSwap(word);
        const acquiring = asking(at, options);
        await at.demote(true);
        const lock = await acquiring;
        assert.equal((await lookAt(at.replica.run, 'job')).token, lock.token, JSON.stringify(options));
        assert(lock.remaining > 0 && !lock.signal.aborted);
        assert.equal(await lock.release(), true);
        assert.equal(await lookAt(at.replica.run, 'job'), null);
        await at.stop();
      }
    });

    test(`a server that stays a replica is no answer: ${what}`, async () => {
      const [options, limit] = waits ? [{ outage: 12_000 }, 12_000] : [{ wait: 12_000 }, 12_000];
      const at = await serversToSwap(word);
      const acquiring = asking(at, options);
      await at.demote(false);
      // 250: what docs/time-limits.md allows beyond a limit.
      await settles(acquiring, limit + 250 + LATE, JSON.stringify(options));
      await assert.rejects(acquiring, isNoAnswer);
      await at.stop();
    });
  }

  test('a wait for replicas that a demotion ends is no answer', async () => {
    // No command is kept back in this test, so the word does not matter.
    const at = await serversToSwap('nothing');
    at.replica.freeze();
    const acquiring = at.dlock.acquire('job');
    await until('the primary executes WAIT', async () => (await at.primary.run('CLIENT', 'LIST')).includes('cmd=wait'));
    await at.primary.run('REPLICAOF', '127.0.0.1', String(at.replica.port));
    at.replica.thaw();
    await at.replica.run('REPLICAOF', 'NO', 'ONE');
    at.line.lead(at.replica.port);
    const lock = await acquiring;
    assert.equal((await lookAt(at.replica.run, 'job')).token, lock.token);
    await lock.release();
    await at.stop();
  });

  test('what a demoted server says of a lock that is held is no answer', async () => {
    const servers = await primaryAndReplica();
    const dlock = new DLock(await open({ at: servers.primary.port }), { answer: 4000, replicasTimeout: 3000 });
    const ways = [{}, { replicas: 1 }, { session: true }, { replicas: 1, session: true }];
    const locks = await Promise.all(ways.map((way, at) => dlock.acquire(`job ${at}`, way)));
    await swap(servers);
    await Promise.all(locks.map((lock) => assert.rejects(lock.extend(), isNoAnswer)));
    await Promise.all(locks.map((lock) => assert.rejects(lock.release(), isNoAnswer)));
    await Promise.all([servers.primary.stop(), servers.replica.stop()]);
  });

  test('a release that was only refused, and then finds nothing, tells the loss', async () => {
    for (const way of [{}, { session: true }]) {
      const servers = await primaryAndReplica();
      const line = await wire(servers.primary.port);
      const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, ...way });
      const lock = await dlock.acquire('job');
      await until('the replica has the grant', async () => (await lookAt(servers.replica.run, 'job')) !== null);
      await swap(servers);
      await servers.replica.run('DEL', 'job');
      line.lead(servers.replica.port);
      assert.equal(await lock.release(), false, JSON.stringify(way));
      await Promise.all([servers.primary.stop(), servers.replica.stop()]);
    }
  });

  test('a server that is a replica for long is an outage', async () => {
    const primary = await start();
    const replica = await start();
    await replica.run('REPLICAOF', '127.0.0.1', String(primary.port));
    const dlock = new DLock(await open({ at: replica.port }), { outage: 4000 });
    const ways = [{}, { session: true }, { replicas: 1 }, { wait: 4000 }];
    await Promise.all(ways.map(async (way) => {
      const acquiring = dlock.acquire('job', way);
      await settles(acquiring, 4000 + 250 + LATE, JSON.stringify(way));
      await assert.rejects(acquiring, isNoAnswer);
    }));
    await assert.rejects(dlock.acquire('job', { wait: 0 }), NoAnswer);
    await Promise.all([primary.stop(), replica.stop()]);
  });
}, { concurrency: 5 });
