import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';

import { DLock, LockLost } from 'redis-dlock';

import { clientsOf, host, lookAt, port, reasonOf, refused, sleep, test } from './fixture.js';
import { PATIENT, until, untilWaiting, wire, withEachClient } from './fixture.js';

let last = Promise.resolve();

/**
 * Runs a task after the previous one has ended. The tests of both clients run in one program: a task that blocks the
 * program would delay the commands of the other client's task that are not sent yet.
 */
function alone(task) {
  const running = last.then(task);
  last = running.catch(() => {});
  return running;
}

withEachClient(({ key, run, open, listen }) => {
  test('twenty waiters, each for longer than three timeouts of the client, are served in order', async () => {
    const timeout = 500;
    const dlock = new DLock(await open({ timeout }));
    const holder = await new DLock(await open(), PATIENT).acquire(key('line'));
    const served = [];
    const waiters = [];
    let last;
    for (let i = 0; i < 20; i += 1) {
      const asked = performance.now();
      waiters.push(
        dlock.acquire(key('line')).then(async (lock) => {
          served.push(i);
          assert(performance.now() - asked > 3 * timeout);
          await lock.release();
        }),
      );
      await untilWaiting(run, key('line'), i + 1);
      last = asked;
    }
    await sleep(Math.max(0, last + 3 * timeout + 50 - performance.now()));
    assert.deepEqual(served, []);
    await holder.release();
    await Promise.all(waiters);
    assert.deepEqual(served, [...Array(20).keys()]);
  });

  test('a wait ends after its time', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const holder = await dlock.acquire(key('patience'));
    const asked = performance.now();
    await refused(() => dlock.acquire(key('patience'), { wait: 200 }));
    assert(performance.now() - asked >= 199); // The timers of Node.js may be 1 ms early.
    await untilWaiting(run, key('patience'), 0);
    await holder.release();
  });

  test('a lock that was waited for has its whole lease', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const holder = await dlock.acquire(key('whole'));
    const waiting = dlock.acquire(key('whole'), { lease: 6000 });
    await untilWaiting(run, key('whole'), 1);
    await sleep(2100); // more than a third of the lease, which counts from before the wait until it is renewed
    await holder.release();
    const lock = await waiting;
    assert(lock.remaining > 4000);
    await lock.release();
  });

  test('a wait sends no command until the grant', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const holder = await dlock.acquire(key('quiet'));
    const waiting = dlock.acquire(key('quiet'));
    await untilWaiting(run, key('quiet'), 1);
    const heard = await listen(key('quiet'));
    await sleep(300);
    assert.deepEqual(heard, []);
    await holder.release();
    await (await waiting).release();
    await until('the release was heard', async () => heard.at(-1) === 'DLOCK.RELEASE');
  });

  test('an aborted wait leaves the queue and keeps nothing', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const holder = await dlock.acquire(key('abort'));
    const controller = new AbortController();
    const waiting = dlock.acquire(key('abort'), { signal: controller.signal });
    await untilWaiting(run, key('abort'), 1);
    controller.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
    await untilWaiting(run, key('abort'), 0);
    await holder.release();
    assert.equal(await lookAt(run, key('abort')), null);
    await assert.rejects(dlock.acquire(key('abort'), { signal: controller.signal }), /enough/);
  });

  test('a waiter whose connection breaks waits again', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const holder = await dlock.acquire(key('again'));
    const waiting = dlock.acquire(key('again'));
    await untilWaiting(run, key('again'), 1);
    const [first] = await clientsOf(run, key('again'), 'queue', 'client');
    await run('CLIENT', 'KILL', 'ID', first);
    await until('the waiter is in the queue again', async () => {
      const [client] = await clientsOf(run, key('again'), 'queue', 'client');
      return client !== undefined && client !== first;
    });
    await holder.release();
    await (await waiting).release();
  });

  test('a grant whose reply was lost is the grant that the repeat gets', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    await (await dlock.acquire(key('reply'))).release();
    const heard = line.replies();
    line.hold();
    const acquiring = dlock.acquire(key('reply'));
    await until('the server has replied', async () => line.replies() > heard);
    const { token } = await lookAt(run, key('reply'));
    line.mend();
    line.cut();
    const lock = await acquiring;
    assert.equal(lock.token, token);
    assert.equal((await lookAt(run, key('reply'))).count, 1);
    await lock.release();
  });

  test('a grant after waiting whose reply was lost is the grant that the repeat gets', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    const holder = await new DLock(await open(), PATIENT).acquire(key('waited'));
    const waiting = dlock.acquire(key('waited'));
    await untilWaiting(run, key('waited'), 1);
    line.hold();
    await holder.release();
    const { token } = await lookAt(run, key('waited'));
    line.mend();
    line.cut();
    const lock = await waiting;
    assert.equal(lock.token, token);
    assert.equal(await lock.release(), true);
  });

  test('a lock is taken for lost one lease after the last renewal that was answered', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    const lease = 3000;
    const using = dlock.using(key('cut'), { lease }, async (signal, lock) => {
      line.hold();
      const held = performance.now();
      const known = lock.remaining;
      assert((await reasonOf(signal)) instanceof LockLost);
      assert(performance.now() - held >= known - 1);
      line.mend();
      line.cut();
    });
    await assert.rejects(using, LockLost);
  });

  test('renewals go on after the connection was lost', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    await dlock.using(key('back'), { lease: 6000 }, async (signal, lock) => {
      line.cut();
      await sleep(2100); // more than a third of the lease: a renewal is due
      await until('the lock was renewed', async () => lock.remaining > 4000);
      assert.equal(signal.aborted, false);
    });
    assert.equal(await lookAt(run, key('back')), null);
  });

  test('an answer that has come while the program was busy is heard', () => alone(async () => {
    const dlock = new DLock(await open(), { answer: 1000 });
    // The program is busy for longer than an answer may take, and until the server has answered another program twice.
    // By then the server has also answered the command.
    const ask = `require('net').connect(${port}, '${host}', function () { this.write('PING\\r\\n'); })
      .once('data', function () { this.end('PING\\r\\n'); }).resume()`;
    // The client writes the command in a microtask or, with node-redis, in an immediate. The immediate below runs after
    // both, and before the event loop reads answers.
    const busy = async (request) => {
      for (let step = 0; step < 100; step += 1) await undefined;
      setImmediate(() => {
        const end = performance.now() + 1500;
        execFileSync(process.execPath, ['-e', ask], { timeout: 60_000 });
        while (performance.now() < end);
      });
      return request;
    };
    const lock = await busy(dlock.acquire(key('busy'), { wait: 0 }));
    assert.equal(await busy(lock.release()), true);
  }));

  // Node.js warns of a leak if one signal has more than ten listeners.
  test('many acquisitions may share a signal without a warning', async () => {
    const warnings = [];
    const onWarning = (warning) => warnings.push(String(warning));
    process.on('warning', onWarning);
    const dlock = new DLock(await open(), PATIENT);
    const holder = await dlock.acquire(key('signal'));
    const controller = new AbortController();
    const { signal } = controller;
    const waits = [...Array(20).keys()].map(() => dlock.acquire(key('signal'), { signal }));
    const watching = (async () => {
      for await (const each of dlock.watch(key('signal'), { signal })) assert(each);
    })();
    await untilWaiting(run, key('signal'), 20);
    controller.abort(new Error('enough'));
    await Promise.all(waits.map((wait) => assert.rejects(wait, /enough/)));
    await watching;
    await untilWaiting(run, key('signal'), 0);
    await holder.release();
    await sleep(0);
    process.off('warning', onWarning);
    assert.deepEqual(warnings, []);
  });
});
