import assert from 'node:assert/strict';

import { DLock } from 'redis-dlock';

import { lookAt, test, withEachClient } from './fixture.js';

withEachClient(({ key, run, open }) => {
  test('a resource is one name', async () => {
    const dlock = new DLock(await open());
    for (const resource of [['a', 'b'], '', undefined, null, 5, {}]) {
      for (const call of [dlock.acquire, dlock.read, dlock.write]) {
        await assert.rejects(call.call(dlock, resource), /resource is a name/);
      }
      await assert.rejects(dlock.using(resource, {}, async () => {}), /resource is a name/);
    }
    assert.equal(await run('EXISTS', 'a,b'), 0);
  });

  test('options are an object with known names', async () => {
    const dlock = new DLock(await open());
    for (const options of [5000, '5000', null, [5000], true]) {
      await assert.rejects(dlock.acquire(key('options'), options), /options is an object/);
      await assert.rejects(dlock.read(key('options'), options), /options is an object/);
      await assert.rejects(dlock.using(key('options'), options, async () => {}), /options is an object/);
      if (options !== undefined) assert.throws(() => new DLock({ ...stub }, options), /options is an object/);
    }
    await assert.rejects(dlock.acquire(key('options'), { ttl: 5000 }), /unknown option ttl/);
    assert.equal(await lookAt(run, key('options')), null);
  });

  test('values are of their kind', async () => {
    const dlock = new DLock(await open());
    const wrong = [
      { lease: '5000' }, { wait: '5' }, { wait: null }, { answer: 0 }, { session: 1 }, { replicas: -1 },
      { replicas: 1.5 }, { replicas: 1, replicasTimeout: 0 }, { signal: {} }, { mode: 'toString' },
    ];
    for (const options of wrong) {
      const named = new RegExp(Object.keys(options).at(-1));
      await assert.rejects(dlock.acquire(key('values'), options), named, JSON.stringify(options));
    }
    assert.equal(await lookAt(run, key('values')), null);
  });

  test('using needs a routine, and options may be left out', async () => {
    const dlock = new DLock(await open());
    await assert.rejects(dlock.using(key('routine'), {}), /routine is a function/);
    await assert.rejects(dlock.using(key('routine'), {}, 5000), /routine is a function/);
    assert.equal(await lookAt(run, key('routine')), null);
    assert.equal(await dlock.using(key('routine'), (signal) => signal.aborted), false);
  });
});

/** A client, as far as the constructor looks. */
const stub = { options: {}, call() {}, duplicate() {} };
