/** How long a lock is held at most (`maxHold`), and how long it stays at least (`atLeast`). */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';

import { DLock, LockLost, NotGranted } from 'redis-dlock';

import { PATIENT, host, lookAt, port, reasonOf, refused, settles, sleep, test } from './fixture.js';
import { openSession, until, untilWaiting, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

withEachClient(({ key, run, open, listen }) => {
  test('a lock is lost at its cap, however it is kept', async () => {
    const client = await open();
    const session = await openSession(client, { timeout: 5000 });
    const dlock = new DLock(client, { ...PATIENT, lease: 6000, maxHold: 12_000 });
    const never = () => new Promise(() => {});
    const kept = (/** @type {any} */ acquire) =>
      new Promise((resolve) => acquire((_, lock) => (resolve(lock), never())).catch(() => {}));
    const kinds = {
      renewed: kept((routine) => dlock.using(key('cap'), routine)),
      connection: dlock.acquire(key('cap of a connection'), { session: true }),
      named: dlock.acquire(key('cap of a session'), { session }),
      permits: kept((routine) => dlock.semaphore(key('cap of permits'), 2).using(routine)),
      several: kept((routine) => dlock.usingAll([key('cap a'), key('cap b')], routine)),
    };
    for (const [kind, lock] of Object.entries(kinds)) kinds[kind] = await lock;
    const began = performance.now();
    for (const [kind, lock] of Object.entries(kinds)) {
      assert(lock.remaining > 0 && lock.remaining <= 12_000, kind);
      lock.signal.addEventListener('abort', () => (lock.took = performance.now() - began));
    }
    await settles(Promise.all(Object.values(kinds).map(({ signal }) => reasonOf(signal))), 12_200, 'the losses');
    for (const [kind, lock] of Object.entries(kinds)) {
      assert(lock.signal.reason instanceof LockLost && lock.remaining === 0, kind);
      assert(lock.took > 7000, `${kind} was not renewed: ${lock.took}`);
      assert.equal(await lock.release().catch(() => false), false, kind);
    }
    await session.close();
  });

  test('a cap counts from the grant', async () => {
    const client = await open();
    const session = await openSession(client, { timeout: 12_000 });
    for (const options of [{}, { session: true }, { session }]) {
      const holder = await new DLock(client, PATIENT).acquire(key('grant'), { lease: 60_000 });
      const waiting = new DLock(client, PATIENT).acquire(key('grant'), { ...options, maxHold: 6000 });
      await untilWaiting(run, key('grant'), 1);
      await sleep(4500);
      await holder.release();
      const lock = await waiting;
      assert(lock.remaining > 1500, `${lock.remaining} ms are left`);
      const left = Number(await run('PTTL', key('grant')));
      assert(lock.remaining <= left + 1, `${lock.remaining} of ${left}`);
      await settles(reasonOf(lock.signal), left + 50, 'the loss'); // `reasonOf` looks every 5 ms.
    }
    await session.close();
  });

  test('a grant that is confirmed late is not held beyond its cap', async () => {
    for (const isRepeated of [false, true]) {
      const server = await start();
      const line = await wire(server.port);
      const client = await open({ at: line.port });
      await server.run('DLOCK.ACQUIRE', 'late', 'holder', 'PX', '60000');
      const waiting = new DLock(client, PATIENT).acquire('late', { lease: 8000, maxHold: 8000, wait: 30_000 });
      await untilWaiting(server.run, 'late', 1);
      line.hold();
      await server.run('DLOCK.RELEASE', 'late', 'holder');
      await sleep(3500); // more than a third of the lease
      if (isRepeated) line.keep('DLOCK.RENEW'); // The renewal gets no answer, and is sent again on another connection.
      line.mend();
      line.cut();
      const lock = await waiting;
      const left = Number(await server.run('PTTL', 'late'));
      assert(lock.remaining > 0 && lock.remaining <= left + 1, `${lock.remaining} of ${left}`);
      await settles(reasonOf(lock.signal), left + 50, 'the loss');
      await server.stop();
    }
  });

  test('the lease of a confirmation without an answer limits what later renewals promise', async () => {
    const server = await start();
    const line = await wire(server.port);
    await server.run('DLOCK.ACQUIRE', 'cut', 'holder', 'PX', '60000');
    const dlock = new DLock(await open({ at: line.port }), { answer: 200 });
    const waiting = dlock.acquire('cut', { lease: 9000, wait: 30_000 });
    await untilWaiting(server.run, 'cut', 1);
    await sleep(3200); // more than a third of the lease
    line.keep('DLOCK.RENEW');
    await server.run('DLOCK.RELEASE', 'cut', 'holder');
    await until('the confirmation is on its way', () => line.kept() > 0);
    server.freeze();
    line.deliver();
    await sleep(320); // The client sends the confirmation again after 225 ms: 200 for the answer, and a pause of 25.
    server.thaw();
    const lock = await waiting;
    await lock.extend(60_000);
    // The confirmation that got no answer may still be executed: its lease of 9 s counts.
    assert(lock.remaining <= 9000, `${lock.remaining} ms are left`);
    await lock.release();
    await server.stop();
  });

  test('a grant of a session that could not be confirmed in time is not held beyond its cap', async () => {
    const server = await start();
    const line = await wire(server.port);
    const client = await open({ at: line.port });
    const session = await openSession(client, { timeout: 12_000 });
    await server.run('DLOCK.ACQUIRE', 'late', 'holder', 'PX', '4500');
    const waiting = new DLock(client, PATIENT).acquire('late', { session, maxHold: 9900, wait: 6000 });
    line.keep('DLOCK.INFO');
    const lock = await waiting;
    line.deliver();
    for (let left = 1; left > 0 && !lock.signal.aborted; ) {
      const until = performance.now() + lock.remaining;
      left = Number(await server.run('DLOCK.CHECK', 'late', String(lock.token)));
      const ends = performance.now() + left;
      assert(until <= ends + 1, `the client takes the lock for certain ${until - ends} ms too long`);
      await sleep(20);
    }
    await settles(reasonOf(lock.signal), 50, 'the loss');
    assert.match(String(lock.signal.reason), /its cap/);
    await session.close();
    await server.stop();
  });

  test('a session reports in time that the cap of the operator ends a lock', async () => {
    const server = await start();
    await server.run('CONFIG', 'SET', 'dlock.max-hold', '8000');
    const client = await open({ at: server.port });
    const session = await openSession(client, { timeout: 2500 });
    const dlock = new DLock(client, { ...PATIENT, session, lease: 6000 });
    const lock = await dlock.acquire('job');
    const short = await dlock.acquire('short');
    await short.release();
    await until('the end of the lock is near', async () => Number(await server.run('PTTL', 'job')) < 2500);
    assert(!lock.signal.aborted && lock.remaining > 0);
    await reasonOf(lock.signal);
    assert(session.isOpen);
    // The server has the lock only for a moment longer, or not any more.
    const end = Number(await server.run('PTTL', 'job'));
    assert(end < 200, `the loss was reported ${end} ms too early`);
    await server.run('CONFIG', 'SET', 'dlock.max-hold', '0');
    const free = await dlock.acquire('free');
    await sleep(9000);
    assert(!free.signal.aborted, 'there is no cap');
    await session.close();
    await server.stop();
  });

  test('extending does not go beyond the cap', async () => {
    const lock = await new DLock(await open(), PATIENT).acquire(key('extended'), { lease: 60_000, maxHold: 9000 });
    await lock.extend(60_000);
    assert(lock.remaining > 1000 && lock.remaining <= 9000);
    await lock.extend(500);
    assert(lock.remaining <= 500);
    await lock.release();
  });

  test('another program goes on with a lock that is handed over', async () => {
    const [here, there] = [new DLock(await open(), PATIENT), new DLock(await open(), PATIENT)];
    const lock = await here.acquire(key('over'), { lease: 20_000, renew: true });
    lock.handOver();
    assert.equal(lock.remaining, 0);
    assert(!lock.signal.aborted, 'a lock that is handed over is not lost');
    const next = await there.resume(key('over'), lock.owner, lock.token, { lease: 60_000 });
    assert.equal(next.token, lock.token);
    assert(next.remaining > 50_000);
    await refused(() => here.acquire(key('over'), { wait: 0 }));
    assert.equal(await next.release(), true);
    assert.equal(await lookAt(run, key('over')), null);
    await assert.rejects(there.resume(key('over'), lock.owner, lock.token), LockLost);
    await assert.rejects(there.resume(key('over'), lock.owner, 0), /token/);
    const ended = await here.acquire(key('over'), { lease: 300 });
    await reasonOf(ended.signal);
    assert.throws(() => ended.handOver(), LockLost);
    const unnoticed = await here.acquire(key('over'), { lease: 300 });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400); // no timer runs meanwhile
    assert.throws(() => unnoticed.handOver(), LockLost);
    assert(unnoticed.signal.aborted, 'the lock is lost');
    const session = await here.acquire(key('over'), { session: true });
    assert.throws(() => session.handOver(), TypeError);
    await session.release();
  });

  test('a lock that is handed over is not released by the program that had it', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const name = key('given');
    const ways = {
      release: (lock) => lock.release(),
      dispose: (lock) => lock[Symbol.asyncDispose](),
      using: () => {},
    };
    for (const options of [{ lease: 60_000 }, { lease: 60_000, atLeast: 20_000 }]) {
      for (const [way, end] of Object.entries(ways)) {
        let next;
        const goesOn = async (lock) => {
          lock.handOver();
          next = await dlock.resume(name, lock.owner, lock.token, { lease: 60_000 });
        };
        if (way === 'using') await dlock.using(name, options, (_, lock) => goesOn(lock));
        else {
          const lock = await dlock.acquire(name, options);
          await goesOn(lock);
          await end(lock);
        }
        assert.equal((await lookAt(run, name))?.token, next.token, way);
        assert((await run('PTTL', name)) > 50_000, `${way}: the lease is that of the other program`);
        assert.equal(await next.release(), true, way);
      }
    }
  });

  test('a lock stays for the time of atLeast after its grant', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const targets = {
      [key('stays')]: (options) => dlock.acquire(key('stays'), options),
      [key('stays a')]: (options) => dlock.acquireAll([key('stays a'), key('stays b')], options),
      [key('stays pool')]: (options) => dlock.semaphore(key('stays pool'), 1).acquire(options),
    };
    for (const [name, acquire] of Object.entries(targets)) {
      const began = performance.now();
      const lock = await acquire({ atLeast: 6000, lease: 400 });
      const granted = performance.now();
      assert(lock.remaining > 1000, 'the first lease is not shorter than atLeast');
      await lock.extend(400);
      assert(Number(await run('PTTL', name)) > 1000, 'a renewal does not shorten the time of atLeast');
      assert.equal(await lock.release(), true);
      assert(!lock.signal.aborted && lock.remaining === 0);
      await assert.rejects(acquire({ wait: 0 }), NotGranted);
      const next = await acquire({ atLeast: 100 });
      const took = performance.now() - began;
      assert(took >= 6000 - (granted - began), `free after ${took} ms`);
      await sleep(150);
      assert.equal(await next.release(), true);
      assert.equal(await lookAt(run, name), null, 'a release after the time of atLeast frees the lock');
    }
  });

  test('a lock of a program that dies stays for the time of atLeast', async () => {
    const program = `
      import { Redis } from 'ioredis';
      import { DLock } from 'redis-dlock';
      await new DLock(new Redis(${port}, '${host}')).acquire('${key('dies')}', { lease: 500, atLeast: 20_000 });
      process.kill(process.pid, 'SIGKILL');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' });
    await once(child, 'exit');
    assert(Number(await run('PTTL', key('dies'))) > 10_000);
    await run('DEL', key('dies'));
  });

  test('the release of a lost lock with atLeast returns false, and no lock stays', async () => {
    const lock = await new DLock(await open(), PATIENT).acquire(key('gone'), { atLeast: 10_000 });
    await run('DEL', key('gone'));
    assert.equal(await lock.release(), false);
    assert.equal(await lookAt(run, key('gone')), null);
  });

  test('invalid limits of a hold are refused', async () => {
    const client = await open();
    const dlock = new DLock(client, PATIENT);
    const heard = await listen(key('refused'));
    const session = await openSession(client);
    for (const maxHold of [0, -1, 1.5, '1000', NaN]) {
      await assert.rejects(dlock.acquire(key('refused'), { maxHold }), RangeError);
    }
    for (const atLeast of [-1, 1.5, '1000', Infinity]) {
      await assert.rejects(dlock.acquire(key('refused'), { atLeast }), RangeError);
    }
    await assert.rejects(dlock.acquire(key('refused'), { atLeast: 1000, maxHold: 999 }), RangeError);
    await assert.rejects(dlock.acquire(key('refused'), { atLeast: 1000, session: true }), TypeError);
    await assert.rejects(dlock.acquire(key('refused'), { atLeast: 1000, session }), TypeError);
    assert.deepEqual(heard, []);
    await session.close();
  });
}, { concurrency: 4 });
