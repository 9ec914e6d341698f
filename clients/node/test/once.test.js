/** At most one run in each period, on all machines together. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

import { DLock, LockLost, NoAnswer } from 'redis-dlock';

import { PATIENT, host, lookAt, port, settles, sleep, test, until, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

withEachClient(({ key, run, open }) => {
  const left = async (name) => Number(await run('PTTL', key(name)));

  test('of programs that start at about the same time, one runs in each period', async () => {
    const machines = await Promise.all(Array.from({ length: 5 }, async () => new DLock(await open(), { answer: 20_000 })));
    const runs = [];
    for (const period of [0, 1, 2]) {
      const began = performance.now();
      const start = async (dlock, at) => {
        await sleep(((at * 7 + period * 3) % 5) * 150); // their clocks differ, another one is first each time
        return dlock.once(key('period'), 3000, async () => runs.push(at));
      };
      const results = await Promise.all(machines.map(start));
      assert.equal(results.filter((ran) => ran).length, 1);
      assert.equal(runs.length, period + 1);
      await sleep(3000 - (performance.now() - began));
    }
  });

  test('the lock stays for nine tenths of the period, counted from the start', async () => {
    const dlock = new DLock(await open(), { ...PATIENT, lease: 9000 });
    let token;
    const began = performance.now();
    const ran = await dlock.once(key('stays'), 60_000, async (signal, lock) => {
      await sleep(9500); // longer than the lease
      assert(!signal.aborted, 'it is renewed');
      ({ token } = lock);
    });
    assert.equal(ran, true);
    const ms = await left('stays');
    // From the end of the run, 54 s would be left.
    const passed = 54_000 - ms;
    assert(passed >= 9000 && passed <= performance.now() - began + 50, `${ms} ms are left`);
    assert.equal((await lookAt(run, key('stays'))).token, token);
    assert.equal(await dlock.once(key('stays'), 60_000, () => assert.fail('it has run')), false);
  });

  test('a run that fails has run', async () => {
    const dlock = new DLock(await open(), PATIENT);
    await assert.rejects(dlock.once(key('fails'), 60_000, () => Promise.reject(new Error('of the job'))), /of the job/);
    assert((await left('fails')) > 50_000);
    assert.equal(await dlock.once(key('fails'), 60_000, () => assert.fail('it has run')), false);
  });

  test('with retryFailed, only a run that succeeds has run', async () => {
    const dlock = new DLock(await open(), { ...PATIENT, lease: 9000 });
    const once = (routine) => dlock.once(key('retried'), 60_000, { retryFailed: true }, routine);
    await assert.rejects(once(() => Promise.reject(new Error('of the job'))), /of the job/);
    assert.equal(await lookAt(run, key('retried')), null);
    const began = performance.now();
    assert.equal(await once(async () => assert((await left('retried')) <= 9000, 'a crash ends it soon')), true);
    const ms = await left('retried');
    const passed = performance.now() - began;
    assert(ms >= 54_000 - passed - 50 && ms <= 54_000 + 50, `${ms} ms are left after ${passed}`);
    assert.equal(await once(() => assert.fail('it has run')), false);
  });

  test('a program that dies has run, but not with retryFailed', async () => {
    for (const retryFailed of [false, true]) {
      const name = key(`dies ${retryFailed}`);
      const program = `
        import { Redis } from 'ioredis';
        import { DLock } from 'redis-dlock';
        const dlock = new DLock(new Redis(${port}, '${host}'), { lease: 1500, answer: 20_000 });
        await dlock.once('${name}', 60_000, { retryFailed: ${retryFailed} }, () => {
          console.log('runs');
          return new Promise(() => {});
        });`;
      const words = ['--input-type=module', '-e', program];
      const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      assert.equal((await lines.next()).value, 'runs');
      child.kill('SIGKILL');
      if (!retryFailed) assert(Number(await run('PTTL', name)) > 50_000);
      else await until('it is free', async () => (await lookAt(run, name)) === null);
    }
  });

  test('a success that no server hears of at first is not forgotten', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), { lease: 20_000 });
    const running = dlock.once(key('unheard'), 60_000, { retryFailed: true }, async () => line.hold());
    await sleep(1500);
    line.mend();
    line.cut();
    assert.equal(await running, true);
    assert((await left('unheard')) > 45_000);
  });

  /** Breaks the connection of the renewal that `line` withholds. */
  const lose = async (line) => {
    await until('the renewal is on its way', () => line.kept() > 0);
    line.drop();
  };

  test('a renewal of the run that is executed late does not shorten the time for which the lock stays', async () => {
    const lease = 20_000;
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, lease });
    let attempts = 0;
    await until('the renewal is executed within a second of the end of the run', async () => {
      const name = `late ${(attempts += 1)}`;
      let ended;
      const running = dlock.once(key(name), 60_000, { retryFailed: true }, async (signal, lock) => {
        line.keep('DLOCK.RENEW');
        const renewing = lock.extend();
        await lose(line);
        await renewing;
        ended = performance.now();
      });
      await until('the lock is left to a longer lease', async () => (await left(name)) > lease);
      line.deliver();
      let isInTime = false;
      while (!isInTime && performance.now() - ended < 1000) {
        isInTime = (await left(name)) <= lease && performance.now() - ended < 1000;
      }
      assert.equal(await running, true);
      const ms = await left(name);
      // On a busy machine, the renewal may come after the last one: then another one is tried.
      assert(!isInTime || ms > lease, `${ms} ms are left`);
      return isInTime;
    });
  });

  test('a renewal after the run never shortens that time, however late it is executed', async () => {
    const lease = 20_000;
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, lease });
    const running = dlock.once(key('after'), 60_000, { retryFailed: true }, () => line.keep('DLOCK.RENEW'));
    await lose(line);
    assert.equal(await running, true);
    const before = await left('after');
    line.deliver();
    let ms = before;
    await until('the renewal is executed', async () => {
      ms = await left('after');
      return ms > before || ms <= lease;
    });
    assert(ms > lease, `${ms} ms are left`);
  });

  test('a run whose lock is taken away is told', async () => {
    const dlock = new DLock(await open(), { lease: 900 });
    for (const retryFailed of [false, true]) {
      const ran = dlock.once(key('taken'), 60_000, { retryFailed }, async (signal) => {
        await run('DEL', key('taken'));
        await until('it is told', async () => signal.aborted);
      });
      await assert.rejects(ran, LockLost);
    }
  });

  test('without a server nothing runs', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    server.freeze();
    const running = dlock.once('job', 60_000, () => assert.fail('it ran'));
    await settles(assert.rejects(running, NoAnswer), 1250, 'it');
    server.thaw();
    await server.run('CONFIG', 'SET', 'dlock.max-lease', '30000');
    for (const retryFailed of [false, true]) {
      const refused = dlock.once('job', 60_000, { retryFailed, lease: 1000 }, () => assert.fail('it ran'));
      await assert.rejects(refused, /max-lease/);
    }
    await server.stop();
  });

  test('invalid periods and options of once are refused', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const once = (period, options) => dlock.once(key('refused'), period, options, () => {});
    for (const period of [999, 0, -1, 1.5, '1d', undefined]) await assert.rejects(once(period, {}), RangeError);
    for (const options of [{ session: true }, { mode: 'read' }, { atLeast: 5 }, { retryFailed: 1 }, { odd: 1 }]) {
      await assert.rejects(once(60_000, options), TypeError);
    }
    await assert.rejects(dlock.once(key('refused'), 60_000), TypeError);
    assert.equal(await lookAt(run, key('refused')), null);
  });
}, { concurrency: 4 });
