import assert from 'node:assert/strict';

import { DLock } from 'redis-dlock';

import { lookAt, test, withEachClient } from './fixture.js';

let warned = false;

withEachClient(({ key, run, open }) => {
  test('a resource is one name', async () => {
    const dlock = new DLock(await open());
    for (const resource of [['a', 'b'], '', undefined, null, 5, {}]) {
      for (const call of [dlock.acquire, dlock.read, dlock.write]) {
        await assert.rejects(call.call(dlock, resource), /resource must be a name/);
      }
      await assert.rejects(dlock.using(resource, {}, async () => {}), /resource must be a name/);
    }
    assert.equal(await run('EXISTS', 'a,b'), 0);
  });

  test('options are an object with known names', async () => {
    const dlock = new DLock(await open());
    for (const options of [5000, '5000', null, [5000], true]) {
      await assert.rejects(dlock.acquire(key('options'), options), /options must be an object/);
      await assert.rejects(dlock.read(key('options'), options), /options must be an object/);
      await assert.rejects(dlock.using(key('options'), options, async () => {}), /options must be an object/);
      assert.throws(() => new DLock({ ...stub }, options), /options must be an object/);
    }
    await assert.rejects(dlock.acquire(key('options'), { ttl: 5000 }), /unknown option ttl/);
    assert.equal(await lookAt(run, key('options')), null);
  });

  test('values are of their kind', async () => {
    const dlock = new DLock(await open());
    const wrong = [
      { lease: '5000' }, { lease: 2 }, { maxHold: 2 }, { wait: '5' }, { wait: null }, { answer: 0 }, { session: 1 }, { replicas: -1 },
      { replicas: 1.5 }, { renew: 1 }, { owner: 5 }, { owner: 'x'.repeat(48) },
      { owner: 'a\nb' }, { replicas: 1, replicasTimeout: 0 }, { signal: {} }, { mode: 'toString' },
    ];
    for (const options of wrong) {
      const named = new RegExp(Object.keys(options).at(-1));
      await assert.rejects(dlock.acquire(key('values'), options), named, JSON.stringify(options));
    }
    assert.equal(await lookAt(run, key('values')), null);
  });

  test('the error about an argument says what was given', async () => {
    const dlock = new DLock(await open());
    const given = [
      [0, '0'], [NaN, 'NaN'], ['2', '"2"'], [2n, '2n'], [undefined, 'undefined'], [null, 'null'], [true, 'true'],
      [[1, 2], 'an array of length 2'], [{ a: 1 }, 'a value of type object'], [() => 1, 'a value of type function'],
    ];
    for (const [limit, words] of given) {
      const message = `limit must be a whole number, 1 or more, not ${words}`;
      assert.throws(() => dlock.semaphore(key('limit'), limit), { name: 'RangeError', message });
    }
  });

  test('a lease of which nothing would be certain is refused at once', async () => {
    const dlock = new DLock(await open());
    await assert.rejects(dlock.acquire(key('short'), { lease: 2 }), /lease must be .* 3 or more/);
    const lock = await dlock.acquire(key('short'), { lease: 3000 });
    await assert.rejects(lock.extend(2), /lease must be .* 3 or more/);
    assert(lock.remaining > 0);
    await lock.release();
  });

  test('an owner is the label and a random end', async () => {
    const dlock = new DLock(await open());
    const lock = await dlock.acquire(key('label'), { owner: 'web-1' });
    assert.match(lock.owner, /^web-1:[0-9a-f]{16}$/);
    assert.equal((await dlock.holder(key('label'))).owner, lock.owner);
    await lock.release();
    const long = await dlock.acquire(key('label'), { owner: 'x'.repeat(47) });
    assert.equal(Buffer.byteLength(long.owner), 64);
    await long.release();
  });

  test('a lease that may be meant in seconds is warned of, once', async () => {
    const dlock = new DLock(await open());
    const heard = [];
    const hear = (warning) => warning.code === 'DLOCK_SHORT_LEASE' && heard.push(warning.message);
    process.on('warning', hear);
    for (let round = 0; round < 2; round += 1) await (await dlock.acquire(key('short'), { lease: 30 })).release();
    await new Promise(setImmediate);
    process.off('warning', hear);
    // The other client's test may have been warned before.
    assert(heard.length <= 1);
    warned ||= /30 milliseconds/.test(heard[0]);
    assert(warned);
  });

  test('using needs a routine, and options may be left out', async () => {
    const dlock = new DLock(await open());
    await assert.rejects(dlock.using(key('routine'), {}), /routine must be a function/);
    await assert.rejects(dlock.using(key('routine'), {}, 5000), /routine must be a function/);
    assert.equal(await lookAt(run, key('routine')), null);
    assert.equal(await dlock.using(key('routine'), (signal) => signal.aborted), false);
  });
});

/** A client, as far as the constructor looks. */
const stub = { options: {}, call() {}, duplicate() {} };
