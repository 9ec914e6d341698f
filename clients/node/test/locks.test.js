import assert from 'node:assert/strict';
import { hostname } from 'node:os';

import { DLock, LockLost, NotGranted } from 'redis-dlock';

import { PATIENT, clientsOf, lookAt, openSession, reasonOf, sleep, test } from './fixture.js';
import { until, untilWaiting, withEachClient } from './fixture.js';

withEachClient(({ key, run, open }) => {
  test('a lock has one owner at a time, and a greater token each time', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('one'));
    await assert.rejects(dlock.acquire(key('one'), { wait: 0 }), NotGranted);
    assert.equal(await lock.release(), true);
    const next = await dlock.acquire(key('one'), { wait: 0 });
    assert(next.token > lock.token);
    assert.notEqual(next.owner, lock.owner);
    assert.equal(await next.release(), true);
    assert.equal(await lookAt(run, key('one')), null);
  });

  test('readers share a lock, writers do not', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const readers = [await dlock.read(key('rw')), await dlock.read(key('rw'), { wait: 0 })];
    await assert.rejects(dlock.write(key('rw'), { wait: 0 }), NotGranted);
    for (const reader of readers) assert.equal(await reader.release(), true);
    const writer = await dlock.write(key('rw'), { wait: 0 });
    await assert.rejects(dlock.read(key('rw'), { wait: 0 }), NotGranted);
    await writer.release();
  });

  test('a late release does not touch the next holder', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const late = await dlock.acquire(key('late'), { lease: 500 });
    const next = await dlock.acquire(key('late'));
    assert.equal(await late.release(), false);
    assert.equal((await lookAt(run, key('late'))).token, next.token);
    assert.equal(await next.release(), true);
  });

  test('extending sets the lease anew', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('extend'), { lease: 5000 });
    await lock.extend(60_000);
    assert(lock.remaining > 50_000);
    assert((await lookAt(run, key('extend'))).ttl > 50_000);
    await run('DEL', key('extend'));
    await assert.rejects(lock.extend(), LockLost);
    assert(lock.signal.reason instanceof LockLost);
    assert.equal(lock.remaining, 0);
  });

  test('a lock that nobody extends is lost with its lease', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('lapse'), { lease: 500 });
    assert((await reasonOf(lock.signal)) instanceof LockLost);
    assert.equal(lock.remaining, 0);
    // The server counts the lease from the arrival of the command, a little later.
    await until('the lease has ended on the server, too', async () => (await lookAt(run, key('lapse'))) === null);
    assert.equal(await lock.release(), false);
  });

  test('using extends the lock for as long as the routine runs, and releases it', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const result = await dlock.using(key('using'), { lease: 9000 }, async (signal, lock) => {
      const began = performance.now();
      await until('a whole lease has passed', async () => performance.now() - began > 9500);
      assert.equal(signal.aborted, false);
      assert.equal((await lookAt(run, key('using'))).token, lock.token);
      return 'done';
    });
    assert.equal(result, 'done');
    assert.equal(await lookAt(run, key('using')), null);
  });

  test('using releases the lock of a routine that fails', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const failing = dlock.using(key('fails'), {}, async () => {
      throw new Error('on purpose');
    });
    await assert.rejects(failing, /on purpose/);
    assert.equal(await lookAt(run, key('fails')), null);
  });

  test('using tells the routine, and its caller, that the lock was lost', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const using = dlock.using(key('lost'), { lease: 900 }, async (signal) => {
      await run('DEL', key('lost'));
      assert((await reasonOf(signal)) instanceof LockLost);
    });
    await assert.rejects(using, LockLost);
  });

  test('a session outlives its lease, and ends with its connection', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('session'), { session: true, lease: 9000 });
    const [session] = await clientsOf(run, key('session'), 'holds', 'session');
    await sleep(9500); // longer than the lease
    assert.equal((await lookAt(run, key('session'))).token, lock.token);
    assert.equal(lock.signal.aborted, false);
    await run('CLIENT', 'KILL', 'ID', session);
    assert((await reasonOf(lock.signal)) instanceof LockLost);
    assert.equal(await lookAt(run, key('session')), null);
    assert.equal(await lock.release(), false);
  });

  test('the connection of a session ends with its release', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('closed'), { session: true, wait: 0 });
    const [session] = await clientsOf(run, key('closed'), 'holds', 'session');
    await assert.rejects(dlock.acquire(key('closed'), { session: true, wait: 0 }), NotGranted);
    assert.equal(await lock.release(), true);
    assert.equal(lock.signal.aborted, false);
    await until('the connection is closed', async () => (await run('CLIENT', 'LIST', 'ID', session)).trim() === '');
  });

  test('a lock is released when it is disposed of', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('dispose'));
    await lock[Symbol.asyncDispose]();
    assert.equal(await lookAt(run, key('dispose')), null);
  });

  test('a key that another program has overwritten is a lock that is lost', async () => {
    const dlock = new DLock(await open(), PATIENT);
    for (const options of [{}, { session: true }, { atLeast: 60_000 }]) {
      // With atLeast, only the release is another command: a renewal.
      if (!options.atLeast) {
        const extended = await dlock.acquire(key('overwritten'), options);
        await run('SET', key('overwritten'), 'x');
        await assert.rejects(extended.extend(), LockLost);
        assert(extended.signal.reason instanceof LockLost && extended.remaining === 0);
        assert.equal(await extended.release(), false);
        await run('DEL', key('overwritten'));
      }
      const released = await dlock.acquire(key('overwritten'), options);
      await run('SET', key('overwritten'), 'x');
      assert.equal(await released.release(), false, JSON.stringify(options));
      await run('DEL', key('overwritten'));
    }
    const using = dlock.using(key('overwritten'), () => run('SET', key('overwritten'), 'x'));
    await assert.rejects(using, LockLost);
    await run('DEL', key('overwritten'));
  });

  test('a key of a program without dlock counts as a lock that is held', async () => {
    const client = await open();
    const [dlock, session] = [new DLock(client, PATIENT), await openSession(client)];
    const takers = {
      acquire: (name, options) => dlock.acquire(name, options),
      session: (name, options) => dlock.acquire(name, { session: true, ...options }),
      named: (name, options) => dlock.acquire(name, { session, ...options }),
      write: (name, options) => dlock.write(name, options),
      semaphore: (name, options) => dlock.semaphore(name, 2).acquire(options),
      all: (name, options) => dlock.acquireAll([`${name}:2`, name], options),
    };
    const isHeld = (error) => error instanceof NotGranted && /WRONGTYPE/.test(error.cause);
    const takes = async ([what, take]) => {
      const name = key(`old:${what}`);
      await run('SET', name, 'old', 'NX');
      for (const wait of [0, 2000]) {
        const began = performance.now();
        await assert.rejects(take(name, { wait }), isHeld, `${what}, ${wait} ms`);
        assert(performance.now() - began >= wait, `${what} gives up before its wait is over`);
      }
      const waiting = take(name, { wait: 20_000 });
      await sleep(250);
      await run('DEL', name);
      assert.equal(await (await waiting).release(), true, what);
    };
    await Promise.all(Object.entries(takers).map(takes));
    await session.close();
  });

  test('a wait goes on when a program without dlock takes the key', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('taken'));
    const waiting = dlock.acquire(key('taken'), { wait: 20_000 });
    await untilWaiting(run, key('taken'), 1);
    await run('SET', key('taken'), 'old');
    await sleep(250);
    await run('DEL', key('taken'));
    assert.equal(await (await waiting).release(), true);
    assert.equal(await lock.release(), false);
  });

  test('an extension tells a lock that was lost from one that was released', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lapsed = await dlock.acquire(key('lapsed'), { lease: 100 });
    await reasonOf(lapsed.signal);
    await assert.rejects(lapsed.extend(), /it was lost before: its lease ended/);
    const released = await dlock.acquire(key('lapsed'));
    await released.release();
    await assert.rejects(released.extend(), /it was released/);
    assert(!released.signal.aborted);
  });

  test('a lock that renews itself outlives its lease, until its release', async () => {
    const lock = await new DLock(await open(), PATIENT).acquire(key('renews'), { lease: 9000, renew: true });
    await sleep(9500);
    assert(!lock.signal.aborted && lock.remaining > 0);
    assert.equal(await lock.release(), true);
    await sleep(1000);
    assert.equal(await lookAt(run, key('renews')), null);
  });

  test('trying gives a lock, or null', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.tryAcquire(key('try'));
    assert.equal(await dlock.tryAcquire(key('try')), null);
    assert.equal(await dlock.tryAcquire(key('try'), { wait: 2000 }), null);
    assert.equal(await lock.release(), true);
    await assert.rejects(dlock.tryAcquire(key('try'), { lease: 0 }), RangeError);
  });

  test('an owner says where the lock is held', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const [one, two] = [await dlock.acquire(key('where')), await dlock.acquire(key('where 2'))];
    const [host, pid, number, end] = one.owner.split(':');
    // The part before the random end has 47 bytes at most. A long host name is cut.
    const whole = hostname().replaceAll(/[^\w.-]/g, '-') || 'host';
    assert.equal(host, whole.slice(0, 47 - `:${pid}:${number}`.length));
    assert.equal(pid, String(process.pid));
    assert.match(`${number} ${end}`, /^\d+ [0-9a-f]{16}$/);
    assert(Buffer.byteLength(one.owner) <= 64 && one.owner !== two.owner);
    await Promise.all([one.release(), two.release()]);
  });

  test('the prefix of the client is put before the key', async () => {
    const dlock = new DLock(await open({ keyPrefix: key('prefix:') }), PATIENT);
    const lock = await dlock.acquire('name');
    assert.equal((await lookAt(run, key('prefix:name'))).token, lock.token);
    await lock.release();
  });

  test('invalid options are refused', async () => {
    const dlock = new DLock(await open(), PATIENT);
    for (const options of [{ lease: 0 }, { lease: 1.5 }, { wait: -1 }, { wait: NaN }, { mode: 'shared' }]) {
      await assert.rejects(dlock.acquire(key('bad'), options), RangeError);
    }
    assert.throws(() => new DLock({ isCluster: true, call() {}, duplicate() {} }), TypeError);
    await assert.rejects(dlock.acquire(key('bad'), { session: true, lease: 10 }), /SESSION/);
    assert.equal(await lookAt(run, key('bad')), null);
  });
});
