import assert from 'node:assert/strict';

import { DLock, LockLost, NotGranted } from 'redis-dlock';

import { PATIENT, clientsOf, lookAt, reasonOf, sleep, test, untilWaiting, withEachClient } from './fixture.js';

withEachClient(({ kind, key, run, open }) => {
  test('a semaphore admits as many as its limit', async () => {
    const pool = new DLock(await open(), PATIENT).semaphore(key('pool'), 3);
    const [one, two] = [await pool.acquire(), await pool.acquire({ permits: 2, session: true })];
    assert.equal((await lookAt(run, key('pool'))).count, 3);
    assert(two.token > one.token);
    await assert.rejects(pool.acquire({ wait: 0 }), NotGranted);
    const waiting = pool.using(async (signal, lock) => lock.token);
    await untilWaiting(run, key('pool'), 1);
    assert.equal(await two.release(), true);
    assert((await waiting) > two.token);
    assert.equal(await one.release(), true);
    assert.equal(await lookAt(run, key('pool')), null);
  });

  test('a permit has the lowest number that is free', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const pool = dlock.semaphore(key('devices'), 3);
    const slots = await Promise.all([0, 1, 2].map(() => pool.acquire({ slot: true })));
    assert.deepEqual(slots.map(({ slot }) => slot).sort(), [0, 1, 2]);
    const waiting = pool.acquire({ slot: true });
    await untilWaiting(run, key('devices'), 1);
    const one = slots.find(({ slot }) => slot === 1);
    assert.equal(await one.release(), true);
    const next = await waiting;
    assert.equal(next.slot, 1);
    await next.extend(60_000);
    const holds = (await clientsOf(run, key('devices'), 'holds', 'slot')).sort();
    assert.deepEqual(holds, [0, 1, 2]);
    for (const lock of [next, ...slots.filter((each) => each !== one)]) assert.equal(await lock.release(), true);
    assert.equal((await pool.acquire({ permits: 3 })).slot, undefined);
    await run('DEL', key('devices'));
    const used = await pool.using({ slot: true, session: true }, async (signal, { slot }) => slot);
    assert.equal(used, 0);
    await assert.rejects(pool.acquire({ slot: true, permits: 2 }), RangeError);
    await assert.rejects(pool.acquire({ slot: 1 }), TypeError);
  });

  test('all of several locks are acquired, or none', async () => {
    const dlock = new DLock(await open({ keyPrefix: key('') }), PATIENT);
    for (const session of [false, true]) {
      const lock = await dlock.acquireAll(['a', 'b'], { session });
      for (const name of ['a', 'b']) assert.equal((await lookAt(run, key(name))).token, lock.token);
      await assert.rejects(dlock.acquireAll(['b', 'c'], { wait: 0 }), NotGranted);
      assert.equal(await lookAt(run, key('c')), null);
      await lock.extend();
      assert.equal(await lock.release(), true);
      for (const name of ['a', 'b']) assert.equal(await lookAt(run, key(name)), null);
    }
  });

  test('several locks are renewed and lost together', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const using = dlock.usingAll([key('x'), key('y')], { lease: 9000 }, async (signal) => {
      await sleep(9500); // longer than the lease
      assert.equal(signal.aborted, false);
      await run('DEL', key('y'));
      assert((await reasonOf(signal)) instanceof LockLost);
    });
    await assert.rejects(using, LockLost);
    assert.equal(await lookAt(run, key('x')), null);
  });

  test('arguments of several locks and of semaphores are checked', async () => {
    const dlock = new DLock(await open(), PATIENT);
    for (const resources of ['a', [], ['a', ''], ['a', 'a'], Array(65).fill('a'), undefined]) {
      await assert.rejects(dlock.acquireAll(resources), TypeError);
    }
    await assert.rejects(dlock.acquireAll(['a'], { mode: 'read' }), /there is no mode/);
    for (const limit of [0, 1.5, '2', undefined]) assert.throws(() => dlock.semaphore('a', limit), RangeError);
    await assert.rejects(dlock.semaphore('a', 2).acquire({ permits: 3 }), RangeError);
    await assert.rejects(dlock.semaphore('a', 2).using({}, 5), /routine must be a function/);
  });
});
