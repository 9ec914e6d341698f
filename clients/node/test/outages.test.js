import assert from 'node:assert/strict';

import { DLock, LockLost, NoAnswer, NotGranted, TooFewReplicas } from 'redis-dlock';

import { PATIENT, clientsOf, lookAt, reasonOf, settles, sleep, test } from './fixture.js';
import { until, untilWaiting, wire, withEachClient } from './fixture.js';
import { primaryAndReplica, start } from './servers.js';

/** The tolerance of measuring, in ms. */
const LATE = 50;

withEachClient(({ key, run, open, close }) => {
  const WAYS = [{}, { session: true }, { replicas: 1 }];

  /** Each kind of acquisition ends in time: neither early nor late. */
  async function endInTime(dlock, name, what) {
    const limits = [[0, 1000], [300, 300], [1000, 1000]];
    const each = WAYS.flatMap((way) => limits.map(([wait, limit]) => ({ wait, limit, way })));
    const ends = each.map(async ({ wait, limit, way }) => {
      const words = `${what}: ${JSON.stringify({ wait, ...way })}`;
      const began = performance.now();
      const acquiring = dlock.acquire(name, { wait, ...way });
      await settles(acquiring, limit + 250 + LATE, words);
      const took = performance.now() - began;
      assert(took >= limit - 2, `after ${took} ms, ${words}`);
      await assert.rejects(acquiring, (error) => error instanceof NoAnswer && error.cause instanceof Error, words);
    });
    await Promise.all(ends);
  }

  test('a wait lasts as long as its limit when nobody answers', async () => {
    const line = await wire();
    const dlock = new DLock(await open({ at: line.port }));
    line.hold();
    await endInTime(dlock, key('hung'), 'replies are lost');
    line.mend();
    line.cut();
    await until('what was granted meanwhile is released', async () => (await lookAt(run, key('hung'))) === null);
  });

  test('a wait lasts as long as its limit when the server is gone', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    const lock = await dlock.acquire('held');
    await server.stop();
    await endInTime(dlock, 'job', 'it is gone');
    await assert.rejects(lock.release(), NoAnswer);
  });

  test('a wait lasts as long as its limit when the server hangs', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    const lock = await dlock.acquire('held');
    server.freeze();
    await endInTime(dlock, 'job', 'it hangs');
    await assert.rejects(lock.release(), NoAnswer);
    server.thaw();
    await until('what was granted meanwhile is released', async () => (await lookAt(server.run, 'job')) === null);
  });

  test('a wait that the server has put into the queue ends with its limit when the server hangs', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    await dlock.acquire('job');
    const acquiring = dlock.acquire('job', { wait: 6000 });
    acquiring.catch(() => {});
    await untilWaiting(server.run, 'job', 1);
    server.freeze();
    await settles(acquiring, 6250 + LATE, 'queued');
    await assert.rejects(acquiring, NotGranted, 'the server has refused it once');
    server.thaw();
    await untilWaiting(server.run, 'job', 0);
  });

  for (const wait of [30_000, Infinity]) {
    for (const session of [false, true]) {
      const what = `${wait === Infinity ? 'without' : 'with'} a limit${session ? ', of a session' : ''}`;
      test(`silence after the grant ends no wait ${what}`, async () => {
        const server = await start();
        const line = await wire(server.port);
        const dlock = new DLock(await open({ at: line.port }), { lease: 9000 });
        await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '60000');
        const acquiring = dlock.acquire('job', { wait, session });
        acquiring.catch(() => {});
        await untilWaiting(server.run, 'job', 1);
        await sleep(3200); // longer than a third of the lease, so that the grant is confirmed
        line.keep('DLOCK.RENEW');
        await server.run('DLOCK.RELEASE', 'job', 'other');
        await until('it is being confirmed', () => line.kept() > 0);
        server.freeze();
        line.deliver();
        await sleep(2500);
        server.thaw();
        const lock = await acquiring;
        assert(!lock.signal.aborted && lock.remaining > 0);
        const info = await lookAt(server.run, 'job');
        assert.equal(info.token, lock.token);
        assert(lock.remaining <= Number(await server.run('PTTL', 'job')) + LATE);
        await server.stop();
      });
    }
  }

  test('a grant that is still certain when the limit passes is kept', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { lease: 20_000 });
    await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '60000');
    const acquiring = dlock.acquire('job', { wait: 12_000 });
    acquiring.catch(() => {});
    await untilWaiting(server.run, 'job', 1);
    // The request, from which the lease counts, was sent before.
    const began = performance.now();
    await sleep(7000); // longer than a third of the lease, so that the grant is confirmed
    line.keep('DLOCK.RENEW');
    await server.run('DLOCK.RELEASE', 'job', 'other');
    await until('it is being confirmed', () => line.kept() > 0);
    server.freeze();
    await settles(acquiring, 12_000 - 7000 + 150 + LATE, 'the limit');
    const lock = await acquiring;
    const most = 20_000 - (performance.now() - began);
    assert(lock.remaining > 0 && lock.remaining <= most, `${lock.remaining} ms are left, not ${most}`);
    server.thaw();
    line.deliver();
    assert.equal(await lock.release(), true);
    await server.stop();
  });

  test('a renewal that the server refuses for now is tried again', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), PATIENT);
    // After a failover, the new primary may have no replica yet.
    const info = async (/** @type {string} */ section) => String(await server.run('INFO', section));
    await dlock.using('job', { lease: 12_000 }, async (signal) => {
      await server.run('CONFIG', 'SET', 'min-replicas-to-write', '1');
      await until('a renewal is refused', async () => /NOREPLICAS/.test(await info('errorstats')));
      await server.run('CONFIG', 'SET', 'min-replicas-to-write', '0');
      await until('the next one succeeds', async () => /dlock_renewals:[1-9]/.test(await info('dlock')));
      assert(!signal.aborted);
    });
  });

  test('a server that comes back within the limit of a wait is found', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), PATIENT);
    await server.stop();
    const acquiring = dlock.acquire('job', { wait: 60_000 });
    await sleep(4000);
    const again = await start({ port: server.port });
    const lock = await acquiring;
    assert.equal((await lookAt(again.run, 'job')).token, lock.token);
    await lock.release();
  });

  test('a wait without a limit ends after an outage', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), { outage: 9000 });
    const holder = await dlock.acquire('job', { lease: 60_000 });
    const waiting = dlock.acquire('job');
    await untilWaiting(server.run, 'job', 1);
    await sleep(9500); // a server that answers is not an outage
    server.freeze();
    const took = await settles(waiting, 9000 + 250 + LATE, 'frozen');
    await assert.rejects(waiting, (error) => error instanceof NoAnswer);
    assert(took > 700, `the outage ends ${took} ms after the freeze, but counts from the last answer`);
    await settles(dlock.acquire('job'), 9000 + 250 + LATE, 'frozen from the start');
    server.thaw();
    await untilWaiting(server.run, 'job', 0);
    await holder.release();
    await server.stop();
    const asked = performance.now();
    await assert.rejects(dlock.acquire('job'), NoAnswer);
    assert(performance.now() - asked >= 8998);
  });

  test('a wait keeps its place while the server hangs', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), { ...PATIENT, outage: 30_000 });
    const holder = await dlock.acquire('job', { lease: 60_000 });
    const served = [];
    const waits = [];
    for (const name of ['first', 'second']) {
      waits.push(dlock.acquire('job').then((lock) => served.push(name) && lock.release()));
      await untilWaiting(server.run, 'job', waits.length);
    }
    server.freeze();
    await sleep(7000); // the waits look for another server after 5 s + 1 s
    server.thaw();
    await untilWaiting(server.run, 'job', 2);
    await holder.release();
    await Promise.all(waits);
    assert.deepEqual(served, ['first', 'second']);
  });

  test('an aborted acquisition returns at once, wherever it is, and is cleaned up', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    const holder = await dlock.acquire('held', { lease: 600_000 });
    for (const [isFrozen, name] of [[false, 'job'], [true, 'job'], [false, 'held'], [true, 'held']]) {
      for (const way of [{}, { session: true }, { replicas: 1, replicasTimeout: 10_000 }]) {
        const controller = new AbortController();
        if (isFrozen && name === 'job') server.freeze();
        const acquiring = dlock.acquire(name, { ...way, signal: controller.signal });
        acquiring.catch(() => {});
        if (name === 'held') await untilWaiting(server.run, 'held', way.replicas ? 0 : 1);
        if (isFrozen) server.freeze();
        await sleep(isFrozen ? 500 : 20);
        controller.abort(new Error('enough'));
        await settles(acquiring, 100 + LATE, JSON.stringify({ isFrozen, name, ...way }));
        await acquiring.then((lock) => lock.release(), (error) => assert.match(error.message, /enough/));
        server.thaw();
        await untilWaiting(server.run, name, 0);
        if (name === 'job') await until('nothing is held', async () => (await lookAt(server.run, 'job')) === null);
      }
    }
    await holder.release();
  });

  test('a client that is not connected acquires nothing, and what was acquired before is released', async () => {
    const client = await open();
    const dlock = new DLock(client, PATIENT);
    const [lock, session] = [await dlock.acquire(key('a')), await dlock.acquire(key('b'), { session: true })];
    close(client);
    await until('it is closed', () => client.status !== 'ready');
    for (const way of [{}, { wait: 0 }, { session: true }, { wait: 0, session: true }]) {
      await assert.rejects(dlock.acquire(key('c'), way), /the client is closed/);
    }
    assert.equal(await lock.release(), true);
    assert.equal(await session.release(), true);
    for (const name of ['a', 'b', 'c']) assert.equal(await lookAt(run, key(name)), null, name);
  });

  test('a session is bound again after a failover', async () => {
    const { primary, replica } = await primaryAndReplica();
    const line = await wire(primary.port);
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, lease: 30_000 });
    const session = true;
    const locks = [await dlock.acquire('job', { session }), await dlock.acquireAll(['x', 'y'], { session })];
    for (const name of ['job', 'x', 'y']) {
      await until('it is replicated', async () => (await lookAt(replica.run, name)) !== null);
    }
    await primary.stop();
    await replica.run('REPLICAOF', 'NO', 'ONE');
    line.lead(replica.port);
    line.cut();
    for (const name of ['job', 'x', 'y']) {
      await until('it is bound', async () => (await clientsOf(replica.run, name, 'holds', 'session'))[0] !== null);
    }
    const left = () => replica.run('PTTL', 'job');
    await until('time goes by', async () => (await left()) < 28_000);
    await until('the new primary renews it', async () => (await left()) > 29_000);
    for (const lock of locks) {
      assert.equal(lock.signal.aborted, false);
      assert.equal(await lock.release(), true);
    }
  });

  test('a binding that arrives late does not release the lock', async () => {
    const server = await start({ options: ['--dlock.session-grace', '20000'] });
    const line = await wire(server.port);
    const client = await open({ at: line.port });
    const lock = await new DLock(client).acquire('job', { session: true, lease: 60_000, answer: 2000 });
    const bound = async () => (await clientsOf(server.run, 'job', 'holds', 'session'))[0];
    const clients = async () => (await server.run('CLIENT', 'LIST')).split('\n').filter((each) => each).length;
    const [first, before] = [await bound(), await clients()];
    line.keep('SESSION');
    await server.run('CLIENT', 'KILL', 'ID', String(first));
    await until('a command that binds is kept back', async () => line.kept() > 0);
    await until('another one has bound it', async () => ![null, first].includes(await bound()));
    const second = await bound();
    await server.run('CONFIG', 'SET', 'dlock.session-grace', '0');
    line.deliver();
    await until('the late one has arrived', async () => ![null, second].includes(await bound()));
    await sleep(300);
    assert.equal((await lookAt(server.run, 'job')).token, lock.token);
    assert(!lock.signal.aborted);
    assert.equal(await lock.release(), true);
    await until('its connections are closed', async () => (await clients()) === before - 1);
    await server.stop();
  });

  test('a session whose server hangs for a while is kept', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    const lock = await dlock.acquire('job', { session: true, lease: 12_000 });
    server.freeze();
    await sleep(6000); // it is asked after 4 s, for 1 s
    server.thaw();
    await until('it is confirmed', () => lock.remaining > 8000);
    assert.equal(lock.signal.aborted, false);
    assert.equal((await lookAt(server.run, 'job')).token, lock.token);
    await server.stop();
  });

  test('what one command leaves unread is never the answer to another', async () => {
    const server = await start();
    const client = await open({ at: server.port });
    const dlock = new DLock(client, { replicas: 1, replicasTimeout: 2000, wait: 20_000, answer: 20_000 });
    const plain = (...words) => (client.call ? client.call(...words) : client.sendCommand(words));
    await plain('SET', 'string', 'value');
    const answersFit = async (what) => {
      for (let i = 0; i < 20; i += 1) assert.equal(await plain('ECHO', `${what} ${i}`), `${what} ${i}`);
      assert.equal(await plain('GET', 'string'), 'value', what);
    };
    const isHeld = (error) => error instanceof NotGranted && /WRONGTYPE/.test(error.cause);
    await assert.rejects(dlock.acquire('string', { wait: 0 }), isHeld);
    await assert.rejects(dlock.acquire('string', { wait: 0, session: true }), isHeld);
    await answersFit('another type');
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await assert.rejects(dlock.acquire('job'), /NOREPLICAS/);
    await answersFit('too few replicas to write');
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '0', 'maxmemory', '1');
    await assert.rejects(dlock.acquire('job'), /OOM/);
    await answersFit('no memory');
    await server.run('CONFIG', 'SET', 'maxmemory', '0');
    const session = await dlock.acquire('session', { session: true, replicas: 0 });
    for (let ms = 0; ms < 12; ms += 0.5) {
      const controller = new AbortController();
      const { signal } = controller;
      const tasks = [
        dlock.acquire('job', { signal, replicasTimeout: 5000, wait: 5000 }),
        dlock.acquire('job', { signal, replicas: 0 }),
        dlock.watch('job', { signal }).next(),
        session.extend(),
      ];
      await sleep(ms);
      controller.abort(new Error('enough'));
      for (const task of await Promise.allSettled(tasks)) {
        if (task.status === 'rejected') assert.match(task.reason.message, /enough/);
        else await task.value?.release?.();
      }
      await answersFit(`aborted after ${ms} ms`);
    }
    assert.equal(await session.release(), true);
    await until('nothing is held', async () => (await lookAt(server.run, 'job')) === null);
  });

  test('a server without the module is an error that says so', async () => {
    const { port } = await start({ withModule: false });
    const dlock = new DLock(await open({ at: port }), { answer: 20_000 });
    for (const options of [{}, { wait: 0 }, { session: true }, { replicas: 1 }]) {
      await assert.rejects(dlock.acquire('job', options), /is the dlock module loaded on this server/);
    }
  });

  test('a grant that replicas have, and one that too few have', async () => {
    const { primary, replica } = await primaryAndReplica();
    const dlock = new DLock(await open({ at: primary.port }), { ...PATIENT, lease: 60_000, replicasTimeout: 20_000 });
    for (const session of [false, true]) {
      const lock = await dlock.acquire('job', { replicas: 1, session });
      const waiting = dlock.acquire('job', { replicas: 1, session });
      await untilWaiting(primary.run, 'job', 1);
      await lock.extend();
      await lock.release();
      await (await waiting).release();
      const short = { replicas: 2, replicasTimeout: 1000, session };
      const tooFew = (error) => error instanceof TooFewReplicas && error.acknowledged === 1;
      await assert.rejects(dlock.acquire('job', short), tooFew);
      await until('it is released', async () => (await lookAt(primary.run, 'job')) === null);
    }

    await primary.run('CONFIG', 'RESETSTAT');
    const lock = await dlock.acquire('job', { replicas: 1 });
    const stats = await primary.run('INFO', 'commandstats');
    assert.match(stats, /cmdstat_dlock\.acquire:calls=1,/);
    assert.match(stats, /cmdstat_wait:calls=1,/);
    assert.doesNotMatch(stats, /cmdstat_dlock\.renew/, 'one round trip');
    await lock.release();

    // Renewals that the replica has not acknowledged do not count.
    const held = await dlock.acquire('job', { lease: 15_000, replicas: 1, replicasTimeout: 1000 });
    held.keep();
    await replica.run('REPLICAOF', 'NO', 'ONE');
    await assert.rejects(held.extend(), TooFewReplicas);
    assert((await reasonOf(held.signal)) instanceof LockLost);
    await held.release();
  });

  test('without waiting, a lock that is held is refused at once', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const lock = await dlock.acquire(key('held'));
    const refused = dlock.acquire(key('held'), { wait: 0 });
    await assert.rejects(refused, NotGranted);
    await lock.release();
  });
}, { concurrency: 5 });
