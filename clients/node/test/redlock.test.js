/** Tests of `redis-dlock/redlock`, which takes the place of redlock 5 in a program. */

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

import Redlock, { ExecutionError, Lock, ResourceLockedError } from 'redis-dlock/redlock';

import { lookAt, sleep, test, until, untilWaiting, withEachClient } from './fixture.js';
import { start } from './servers.js';

const SETTINGS = { driftFactor: 0.01, retryCount: 10, retryDelay: 200, retryJitter: 200, automaticExtensionThreshold: 500 };

withEachClient(({ key, run, open, kind }) => {
  test('locks are acquired, extended and released', async () => {
    const redlock = new Redlock([await open()], SETTINGS);
    let lock = await redlock.acquire([key('a')], 30_000);
    const [before, { value, token }] = [lock, lock];
    try {
      assert(lock instanceof Lock);
      // driftFactor takes 1 % of the lease off, which is 300 ms.
      assert(lock.expiration > Date.now() + 10_000 && lock.expiration <= Date.now() + 30_000 - 300);
      assert.equal((await lookAt(run, key('a'))).token, token);
      lock = await lock.extend(90_000);
      assert(lock.expiration > Date.now() + 40_000);
      assert.deepEqual([before.expiration, lock.value, lock.token], [0, value, token]);
      await assert.rejects(before.extend(5000), { name: 'ExecutionError', message: /already-expired/ });
    } finally {
      const { attempts } = await lock.release();
      assert.equal((await attempts[0]).votesFor.size, 1);
    }
    assert.equal(lock.expiration, 0);
    assert.equal(await lookAt(run, key('a')), null);
    await assert.rejects(lock.release(), ExecutionError);
  });

  test('several resources are locked together', async () => {
    const redlock = new Redlock([await open()], SETTINGS);
    const [sender, recipient, third] = ['{s}:1', '{s}:2', '{s}:3'].map(key);
    const lock = await redlock.acquire([sender, recipient], 5000);
    const others = redlock.acquire([recipient, third], 5000, { retryCount: 0 });
    await assert.rejects(others, ExecutionError);
    assert.equal(await lookAt(run, third), null);
    await lock.release();
    await (await redlock.acquire([recipient, third], 5000)).release();
  });

  test('a lock that somebody else holds leads to an ExecutionError and an event', async () => {
    const client = await open();
    const redlock = new Redlock([client], SETTINGS);
    const errors = [];
    redlock.on('error', (error) => errors.push(error));
    const lock = await redlock.acquire([key('taken')], 30_000);
    for (const settings of [{ retryCount: 0 }, { retryCount: 2, retryDelay: 50, retryJitter: 0 }]) {
      const failure = await redlock.acquire([key('taken')], 1000, settings).catch((error) => error);
      assert(failure instanceof ExecutionError);
      assert.equal(failure.message, 'The operation was unable to achieve a quorum during its retry window.');
      const { membershipSize, quorumSize, votesFor, votesAgainst } = await failure.attempts[0];
      assert.deepEqual([membershipSize, quorumSize, votesFor.size], [1, 1, 0]);
      assert(votesAgainst.get(client) instanceof ResourceLockedError);
    }
    assert.equal(errors.length, 2);
    assert(errors.every((error) => error instanceof ResourceLockedError));
    await lock.release();
  });

  test('with retryCount -1, acquire waits in the queue until the lock is free', async () => {
    const redlock = new Redlock([await open()], { retryCount: -1 });
    const [first, waiting] = [await redlock.acquire([key('wait')], 30_000), redlock.acquire([key('wait')], 30_000)];
    await untilWaiting(run, key('wait'), 1);
    await first.release();
    const next = await waiting;
    assert(next.token > first.token);
    await next.release();
  });

  test('a lock that a program with redlock itself holds is respected', async () => {
    const redlock = new Redlock([await open()], SETTINGS);
    await run('SET', key('old'), 'a random value', 'PX', '60000');
    await assert.rejects(redlock.acquire([key('old')], 5000, { retryCount: 0 }), ExecutionError);
    const waiting = redlock.acquire([key('old')], 5000, { retryCount: 600 });
    await run('DEL', key('old'));
    await (await waiting).release();
  });

  test('using extends the lock, and releases it when the routine succeeds or fails', async () => {
    const redlock = new Redlock([await open()], { ...SETTINGS, automaticExtensionThreshold: 6000 });
    const result = await redlock.using([key('using')], 9000, async (signal) => {
      await sleep(9500);
      if (signal.aborted) throw signal.error;
      assert.notEqual(await lookAt(run, key('using')), null);
      return 'done';
    });
    assert.equal(result, 'done');
    assert.equal(await lookAt(run, key('using')), null);
    const failing = redlock.using([key('using')], 9000, { retryCount: 0 }, () => Promise.reject(new Error('of the body')));
    await assert.rejects(failing, /of the body/);
    assert.equal(await lookAt(run, key('using')), null);
    await assert.rejects(redlock.using([key('using')], 6050, async () => {}), /at least 100ms greater/);
  });

  test('the signal of using is aborted with an error when the lock is lost', async () => {
    const redlock = new Redlock([await open()], { ...SETTINGS, automaticExtensionThreshold: 200 });
    const using = redlock.using([key('lost')], 1000, async (signal) => {
      await run('DEL', key('lost'));
      await until('the signal is aborted', async () => signal.aborted);
      assert(signal.error instanceof ExecutionError);
      throw signal.error;
    });
    await assert.rejects(using, ExecutionError);
    const unheeded = redlock.using([key('lost')], 1000, async () => void (await run('DEL', key('lost'))));
    await assert.rejects(unheeded, ExecutionError);
  });

  test('without the module, the error says so, and is no ExecutionError', async () => {
    const server = await start({ withModule: false });
    const redlock = new Redlock([await open({ at: server.port })], SETTINGS);
    const failure = await redlock.acquire(['job'], 5000).catch((error) => error);
    assert.match(failure.message, /is the dlock module loaded/);
    assert(!(failure instanceof ExecutionError));
    await server.stop();
  });

  if (kind !== 'ioredis') return;

  test('unsupported arguments are refused, and quit closes the client', async () => {
    const [one, two] = [await open(), await open()];
    assert.throws(() => new Redlock([]), /at least one/);
    assert.throws(() => new Redlock([one, two]), /one client, not several/);
    assert.throws(() => new Redlock([one], {}, { acquireScript: 'return 1' }), /no scripts/);
    const redlock = new Redlock([one], SETTINGS);
    await assert.rejects(redlock.acquire([key('float')], 10.5), /integer value/);
    await assert.rejects(redlock.acquire('name', 1000), TypeError);
    await assert.rejects(redlock.release(new Lock(redlock, ['a'], [])), TypeError);
    await redlock.quit();
    await until('quit has closed the client', async () => one.status === 'end');
  });

  test('import and require give the same classes', () => {
    const required = createRequire(import.meta.url)('redis-dlock/redlock');
    assert.deepEqual([required.default, required.__esModule], [Redlock, true]);
    assert.equal(required.ExecutionError, ExecutionError);
  });
}, { concurrency: 10 });
