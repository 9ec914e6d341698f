import assert from 'node:assert/strict';

import { DLock, LockLost, NoAnswer, NotGranted, TooFewReplicas } from 'redis-dlock';

import { lookAt, reasonOf, sleep, test, until, untilWaiting, wire, withEachClient } from './fixture.js';
import { primaryAndReplica, start } from './servers.js';

/** Fails unless the promise settles within so many milliseconds, and gives how long it took. */
async function settles(promise, ms, what) {
  const began = performance.now();
  const late = sleep(ms).then(() => assert.fail(`not settled after ${ms} ms: ${what}`));
  await Promise.race([promise.then(() => {}, () => {}), late]);
  return performance.now() - began;
}

withEachClient(({ key, run, open }) => {
  test('wait is a bound when nobody answers', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), { answer: 500 });
    line.hold();
    for (const options of [{ wait: 0 }, { wait: 300 }, { wait: 0, session: true }, { wait: 300, replicas: 1 }]) {
      const acquiring = dlock.acquire(key('hung'), options);
      await settles(acquiring, (options.wait + 500) * 2 + 1000, JSON.stringify(options));
      await assert.rejects(acquiring, NoAnswer);
    }
    line.mend();
    line.cut();
    await until('what was granted meanwhile is released', async () => (await lookAt(run, key('hung'))) === null);
  });

  test('wait is a bound when the server is gone, and an outage counts as waiting', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), { answer: 500 });
    const lock = await dlock.acquire('job', { lease: 60_000 });
    const session = await dlock.acquire('session', { session: true });
    await server.stop();
    for (const options of [{ wait: 0 }, { wait: 300 }, { wait: 0, session: true }, { wait: 300, session: true }]) {
      const acquiring = dlock.acquire('job', options);
      const took = await settles(acquiring, (options.wait + 500) * 2 + 1000, JSON.stringify(options));
      assert(took > options.wait / 2, 'it went on trying');
      await assert.rejects(acquiring, NoAnswer);
    }
    assert((await reasonOf(session.signal)) instanceof LockLost);
    for (const each of [lock, session]) {
      const releasing = each.release();
      await settles(releasing, 3000, 'release');
      await assert.rejects(releasing);
    }
    const acquiring = dlock.acquire('job', { wait: 30_000 });
    await start({ port: server.port });
    await (await acquiring).release();
  });

  test('a server without the module is an error that says so', async () => {
    const { port } = await start({ withModule: false });
    const dlock = new DLock(await open({ at: port }));
    for (const options of [{}, { wait: 0 }, { session: true }, { replicas: 1 }]) {
      await assert.rejects(dlock.acquire('job', options), /is the dlock module loaded on this server/);
    }
  });

  test('a grant that replicas have, and one that too few have', async () => {
    const { primary, replica } = await primaryAndReplica();
    const dlock = new DLock(await open({ at: primary.port }), { lease: 3000, replicasTimeout: 20_000 });
    for (const session of [false, true]) {
      const lock = await dlock.acquire('job', { replicas: 1, session });
      const waiting = dlock.acquire('job', { replicas: 1, session });
      await untilWaiting(primary.run, 'job', 1);
      await lock.extend();
      await lock.release();
      await (await waiting).release();
      const short = { replicas: 2, replicasTimeout: 50, session };
      const tooFew = (error) => error instanceof TooFewReplicas && error.acknowledged === 1;
      await assert.rejects(dlock.acquire('job', short), tooFew);
      assert.equal(await lookAt(primary.run, 'job'), null);
    }

    await primary.run('CONFIG', 'RESETSTAT');
    const lock = await dlock.acquire('job', { replicas: 1 });
    const stats = await primary.run('INFO', 'commandstats');
    assert.match(stats, /cmdstat_dlock\.acquire:calls=1,/);
    assert.match(stats, /cmdstat_wait:calls=1,/);
    assert.doesNotMatch(stats, /cmdstat_dlock\.renew/, 'one round trip');
    await lock.release();

    // Renewals that the replica has not acknowledged do not count.
    const held = await dlock.acquire('job', { replicas: 1, replicasTimeout: 1000 });
    held.keep();
    await replica.run('REPLICAOF', 'NO', 'ONE');
    await assert.rejects(held.extend(), TooFewReplicas);
    assert((await reasonOf(held.signal)) instanceof LockLost);
    await held.release();
  });

  test('without waiting, a lock that is held is refused at once', async () => {
    const dlock = new DLock(await open());
    const lock = await dlock.acquire(key('held'));
    const refused = dlock.acquire(key('held'), { wait: 0 });
    await assert.rejects(refused, NotGranted);
    await lock.release();
  });
});
