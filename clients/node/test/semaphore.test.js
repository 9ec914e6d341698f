/** Programs written for redis-semaphore, with `redis-dlock/semaphore` in its place. */

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

import * as all from 'redis-dlock/semaphore';

import { lookAt, test, until, untilWaiting, withEachClient } from './fixture.js';
import { start } from './servers.js';

const { LostLockError, MultiSemaphore, Mutex, RedlockMutex, RedlockSemaphore, Semaphore, TimeoutError } = all;

withEachClient(({ key, run, open, kind }) => {
  const holdersOf = async (name) => (await lookAt(run, name))?.holders ?? 0;

  test('a mutex has one holder, and the others wait', async () => {
    const client = await open();
    const [first, second, third] = [0, 1, 2].map(() => new Mutex(client, key('mutex'), { acquireTimeout: 20_000 }));
    await first.acquire();
    assert(first.isAcquired && first.token > 0);
    const impatient = new Mutex(client, key('mutex'), { acquireTimeout: 2000 });
    await assert.rejects(impatient.acquire(), (error) => error instanceof TimeoutError);
    assert.equal(await impatient.tryAcquire(), false);
    const waiting = second.acquire();
    await untilWaiting(run, `mutex:${key('mutex')}`, 1);
    await first.release();
    assert.equal(first.isAcquired, false);
    await waiting;
    await second.release();
    await third.acquire();
    await third.release();
    await third.release();
    assert.equal(await lookAt(run, `mutex:${key('mutex')}`), null);
  });

  test('a mutex that is tried once is refused while another has the lock', async () => {
    const client = await open();
    const mutex = new Mutex(client, key('optional'), { acquireAttemptsLimit: 1 });
    assert.equal(await mutex.tryAcquire(), true);
    const other = new Mutex(client, key('optional'), { acquireAttemptsLimit: 1 });
    assert.equal(await other.tryAcquire(), false);
    await mutex.release();
  });

  test('a mutex is refreshed until stopRefresh', async () => {
    const client = await open();
    const mutex = new Mutex(client, key('refresh'), { lockTimeout: 9000 });
    await mutex.acquire();
    const { held } = await lookAt(run, `mutex:${key('refresh')}`, 'FULL').then(({ holds: [hold] }) => fields(hold));
    assert(held < 9000);
    await until('the mutex is held for longer than its timeout', async () => {
      const info = await lookAt(run, `mutex:${key('refresh')}`, 'FULL');
      return fields(info.holds[0]).held > 9500;
    });
    assert(mutex.isAcquired);
    mutex.stopRefresh();
    await until('the lease has ended', async () => (await lookAt(run, `mutex:${key('refresh')}`)) === null);
    await until('the mutex knows of its end', async () => !mutex.isAcquired);
  });

  test('without a refresh a mutex ends, and its object says so', async () => {
    const mutex = new Mutex(await open(), key('none'), { lockTimeout: 400, refreshInterval: 0 });
    await mutex.acquire();
    await until('the mutex has ended', async () => !mutex.isAcquired);
    await mutex.release();
  });

  test('onLockLost is called with the mutex that was lost, which is no longer acquired', async () => {
    const lost = [];
    const options = {
      lockTimeout: 900,
      onLockLost(error) {
        lost.push([this, error]);
      },
    };
    const mutex = new Mutex(await open(), key('lost'), options);
    await mutex.acquire();
    await run('DEL', `mutex:${key('lost')}`);
    await until('the loss is reported', async () => !mutex.isAcquired && lost.length > 0);
    assert.equal(lost[0][0], mutex);
    assert(lost[0][1] instanceof LostLockError);
    await mutex.release();
  });

  test('a handler goes on with the mutex that a scheduler acquired, by its identifier', async () => {
    const [scheduler, handler] = [await open(), await open()];
    const first = new Mutex(scheduler, key('shared'), { lockTimeout: 30_000, refreshInterval: 0 });
    assert.equal(await first.tryAcquire(), true);
    const again = new Mutex(scheduler, key('shared'), { acquireAttemptsLimit: 1 });
    assert.equal(await again.tryAcquire(), false);
    const taken = { identifier: first.identifier, acquiredExternally: true };
    const second = new Mutex(handler, key('shared'), { lockTimeout: 60_000, ...taken });
    await second.acquire();
    assert.equal(second.token, first.token);
    assert((await lookAt(run, `mutex:${key('shared')}`)).ttl > 40_000);
    await second.release();
    assert.equal(await lookAt(run, `mutex:${key('shared')}`), null);
    const late = new Mutex(handler, key('shared'), taken);
    assert.equal(await late.tryAcquire(), false);
    assert.throws(() => new Mutex(handler, key('shared'), { acquiredExternally: true }), /identifier/);
  });

  test('a semaphore has as many holders as its limit, each once', async () => {
    const client = await open();
    const make = (options) => new Semaphore(client, key('sem'), 2, options);
    const [first, second, third] = [make(), make(), make({ acquireAttemptsLimit: 1 })];
    await Promise.all([first.acquire(), first.acquire(), second.acquire()]);
    await first.acquire();
    assert.equal(await holdersOf(`semaphore:${key('sem')}`), 2);
    assert.equal(await third.tryAcquire(), false);
    await first.release();
    assert.equal(await third.tryAcquire(), true);
    await Promise.all([second.release(), third.release()]);
    assert.equal(await lookAt(run, `semaphore:${key('sem')}`), null);
  });

  test('several permits share the limit with single ones, and can be handed on', async () => {
    const client = await open();
    const most = new MultiSemaphore(client, key('multi'), 3, 2, { refreshInterval: 0 });
    const one = new RedlockSemaphore([client], key('multi'), 3);
    const more = new MultiSemaphore(client, key('multi'), 3, 2, { acquireAttemptsLimit: 1 });
    await Promise.all([most.acquire(), one.acquire()]);
    assert.equal(await more.tryAcquire(), false);
    const next = new MultiSemaphore(client, key('multi'), 3, 2, { externallyAcquiredIdentifier: most.identifier });
    await next.acquire();
    await next.release();
    assert.equal(await more.tryAcquire(), true);
    await Promise.all([more.release(), one.release()]);
    assert.equal(await lookAt(run, `semaphore:${key('multi')}`), null);
  });

  test('a key of a program that still uses redis-semaphore keeps the mutex out', async () => {
    const client = await open();
    await run('SET', `mutex:${key('old')}`, 'a UUID', 'PX', '60000');
    const mutex = new Mutex(client, key('old'), { acquireAttemptsLimit: 1 });
    assert.equal(await mutex.tryAcquire(), false);
    await run('DEL', `mutex:${key('old')}`);
    assert.equal(await mutex.tryAcquire(), true);
    await mutex.release();
  });

  test('an acquisition that is aborted rejects with the reason', async () => {
    const client = await open();
    const [mutex, other] = [new Mutex(client, key('abort')), new Mutex(client, key('abort'))];
    await mutex.acquire();
    const aborting = new AbortController();
    const waiting = other.acquire(aborting.signal);
    await untilWaiting(run, `mutex:${key('abort')}`, 1);
    aborting.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
    await untilWaiting(run, `mutex:${key('abort')}`, 0);
    await mutex.release();
  });

  test('the error on a server without the module asks for the module', async () => {
    const server = await start({ withModule: false });
    const client = await open({ at: server.port });
    for (const lock of [new Mutex(client, 'job'), new Semaphore(client, 'job', 2)]) {
      await assert.rejects(lock.tryAcquire(), /is the dlock module loaded/);
    }
    await server.stop();
  });

  // The tests below are the same for every client.
  if (kind !== 'ioredis') return;

  test('constructors refuse unusable arguments', async () => {
    const client = await open();
    assert.throws(() => new RedlockMutex([client, client], 'name'), /one client, not several/);
    assert.throws(() => new Mutex(undefined, 'name'), /client/);
    assert.throws(() => new Mutex(client, ''), /key/);
    assert.throws(() => new Semaphore(client, 'name'), /limit/);
    assert.throws(() => new MultiSemaphore(client, 'name', 2), /permits/);
    assert.throws(() => new Mutex(client, 'name', { lockTimout: 1 }), /unknown option lockTimout/);
    assert.throws(() => new Mutex(client, 'name', { identifierSuffix: 'more than eleven' }), RangeError);
  });

  test('import and require give the same classes', () => {
    const required = createRequire(import.meta.url)('redis-dlock/semaphore');
    assert.deepEqual(Object.keys(required).sort(), Object.keys(all).filter((name) => name !== 'default').sort());
    assert.equal(required.Mutex, Mutex);
  });
}, { concurrency: 10 });

function fields(flat) {
  return Object.fromEntries(flat.flatMap((word, at) => (at % 2 === 0 ? [[word, flat[at + 1]]] : [])));
}
