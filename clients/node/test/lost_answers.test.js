/** Renewals and releases whose answers do not come: a lock promises no more than is certain. */

import assert from 'node:assert/strict';

import { DLock, LockLost, NoAnswer, NotGranted } from 'redis-dlock';

import { PATIENT, clientsOf, lookAt, openSession, settles, sleep, test } from './fixture.js';
import { until, untilWaiting, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** Leases in ms. */
const [SHORT, LONG] = [3000, 60_000];
/** How long the clients wait for an answer, in ms. On a busy machine, a thawed server needs a part of this time. */
const ANSWER = 600;
/** By how many ms more a call may take: the measurement is not exact. */
const LATE = 50;

withEachClient(({ kind, open }) => {
  for (const session of [false, true]) {
    const what = session ? 'a session' : 'a lease';

    test(`an extension of ${what} without an answer promises no more than the shorter lease`, async () => {
      for (const [before, asked] of [[SHORT, LONG], [LONG, SHORT]]) {
        const server = await start();
        const dlock = new DLock(await open({ at: server.port }), { answer: ANSWER });
        const lock = await dlock.acquire('job', { session, lease: before });
        server.freeze();
        const extending = lock.extend(asked);
        await settles(extending, ANSWER + LATE, 'extend');
        await assert.rejects(extending, NoAnswer);
        assert(lock.remaining <= SHORT, `${lock.remaining} ms are left`);
        server.thaw();
        await server.stop();
      }
    });

    test(`an extension of ${what} that may still be executed limits what the next one promises`, async () => {
      const server = await start();
      const dlock = new DLock(await open({ at: server.port }), { answer: ANSWER });
      const lock = await dlock.acquire('job', { session, lease: 20_000 });
      server.freeze();
      await assert.rejects(lock.extend(10_000), NoAnswer);
      server.thaw();
      await until('the server answers', () => lock.extend(LONG).then(() => true, () => false));
      assert(lock.remaining <= 10_000, `${lock.remaining} ms are left`);
      assert.equal(await lock.release(), true);
      await server.stop();
    });
  }

  /** Delivers what is kept, and waits until the lock that it takes is released. */
  async function nobodyKeeps({ run }, line, what) {
    const grants = async () => Number(/dlock_grants:(\d+)/.exec(await run('INFO', 'dlock'))?.[1]);
    const before = await grants();
    line.deliver();
    await until(`${what}: the late one is granted`, async () => (await grants()) > before);
    await until(`${what}: nobody has the lock`, async () => (await run('EXISTS', 'job', 'other')) === 0);
  }

  // The connection of the first copy breaks before the server reads the copy, which takes the lock for nobody.
  test('a request that arrives after the release leaves no hold', async () => {
    const server = await start();
    const line = await wire(server.port);
    const client = await open({ at: line.port });
    const dlock = new DLock(client, { ...PATIENT, lease: LONG });
    const session = await openSession(client);
    const semaphore = dlock.semaphore('job', 3);
    const ways = {
      acquire: () => dlock.acquire('job'),
      renewed: () => dlock.acquire('job', { renew: true, wait: 20_000 }),
      read: () => dlock.read('job'),
      write: () => dlock.write('job'),
      several: () => dlock.acquireAll(['job', 'other']),
      permits: () => semaphore.acquire({ permits: 2 }),
      'named session': () => dlock.acquire('job', { session }),
    };
    for (const [way, acquire] of Object.entries(ways)) {
      line.keep('REQUEST');
      const acquiring = acquire();
      await until('the request is on its way', () => line.kept() > 0);
      line.drop();
      assert.equal(await (await acquiring).release(), true, way);
      await nobodyKeeps(server, line, way);
    }
    await session.close();
    await server.stop();
  });

  // ioredis sends the request again itself, unless it is told not to. Otherwise, the package does.
  test('a request that arrives after the refusal of a repeat leaves no hold', async () => {
    const server = await start();
    const line = await wire(server.port);
    for (const autoResendUnfulfilledCommands of kind === 'ioredis' ? [true, false] : [false]) {
      const client = await open({ at: line.port, ...(kind === 'ioredis' && { autoResendUnfulfilledCommands }) });
      const dlock = new DLock(client, { ...PATIENT, lease: LONG, wait: 0 });
      const session = await openSession(client);
      const ways = {
        acquire: () => dlock.acquire('job'),
        read: () => dlock.read('job'),
        several: () => dlock.acquireAll(['job', 'other']),
        wait: () => dlock.acquire('job', { wait: 1000 }),
        'named session': () => dlock.acquire('job', { session }),
      };
      for (const [way, acquire] of Object.entries(ways)) {
        await server.run('DLOCK.ACQUIRE', 'job', 'holder', 'PX', String(LONG));
        line.keep('REQUEST');
        const acquiring = acquire();
        await until('the request is on its way', () => line.kept() > 0);
        line.drop();
        await assert.rejects(acquiring, NotGranted, way);
        await server.run('DLOCK.RELEASE', 'job', 'holder');
        await nobodyKeeps(server, line, way);
      }
      await session.close();
    }
    await server.stop();
  });

  // The release that follows the abort finds the grant of the second copy, before the first one arrives.
  test('a wait that is given up leaves no hold, even if two copies of its request are granted', async () => {
    const server = await start();
    const [line, own] = [await wire(server.port), await wire(server.port)];
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, lease: LONG });
    await server.run('DLOCK.ACQUIRE', 'job', 'holder', 'PX', String(LONG));
    const stop = new AbortController();
    line.keep('REQUEST');
    const acquiring = dlock.acquire('job', { signal: stop.signal });
    acquiring.catch(() => {});
    await until('the request is on its way', () => line.kept() > 0);
    line.lead(own.port);
    await untilWaiting(server.run, 'job', 1);
    line.lead(server.port);
    line.drop();
    await sleep(500); // The client connects again.
    own.hold();
    await server.run('DLOCK.RELEASE', 'job', 'holder');
    await until('the second copy is granted', async () => (await lookAt(server.run, 'job'))?.holders === 1);
    own.keep('RELEASE');
    stop.abort(new Error('enough'));
    await assert.rejects(acquiring, /enough/);
    await until('the grant is released', async () => (await server.run('EXISTS', 'job')) === 0);
    await nobodyKeeps(server, line, 'given up');
    await server.stop();
  });

  test('a request that arrives after a short time of atLeast leaves no hold', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, lease: LONG });
    for (const keys of [['job'], ['job', 'other']]) {
      line.keep('REQUEST');
      const acquiring = dlock.acquireAll(keys, { atLeast: 500 });
      await until('the request is on its way', () => line.kept() > 0);
      line.drop();
      const lock = await acquiring;
      const began = performance.now();
      assert.equal(await lock.release(), true);
      await until('the time is over', async () => (await server.run('EXISTS', ...keys)) === 0);
      assert(performance.now() - began > 400, 'it was released before');
      await nobodyKeeps(server, line, String(keys));
    }
    await server.stop();
  });

  /** Fails unless the lock is held, and stays held although the connection of a late copy ends. */
  async function staysHeld({ run }, lock, what) {
    await sleep(300);
    assert.equal((await lookAt(run, 'job'))?.token, lock.token, what);
    assert(!lock.signal.aborted && lock.remaining > 0, what);
    assert.equal(await lock.release(), true, what);
    await until(`${what}: nobody has the lock`, async () => (await run('EXISTS', 'job', 'other')) === 0);
  }

  // The late copy binds the hold that it gets to its connection, whose end releases the hold.
  test('a request of a session that arrives after its connection has ended releases no lock', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, session: true, lease: LONG });
    const semaphore = dlock.semaphore('job', 3);
    const ways = {
      try: () => dlock.acquire('job', { wait: 0 }),
      wait: () => dlock.acquire('job', { wait: 20_000 }),
      read: () => dlock.read('job'),
      write: () => dlock.write('job'),
      several: () => dlock.acquireAll(['job', 'other']),
      permits: () => semaphore.acquire({ permits: 2 }),
      slot: () => semaphore.acquire({ slot: true }),
      labelled: () => dlock.acquire('job', { owner: 'web-1' }),
    };
    const calls = async () => {
      const all = (await server.run('INFO', 'commandstats')).matchAll(/dlock\.\w*(?:acquire|lock):calls=(\d+)/g);
      return [...all].reduce((sum, [, each]) => sum + Number(each), 0);
    };
    for (const [way, acquire] of Object.entries(ways)) {
      line.keep('SESSION');
      const acquiring = acquire();
      await until('the request is on its way', () => line.kept() > 0);
      line.drop();
      const lock = await acquiring;
      const before = await calls();
      line.deliver();
      await until(`${way}: the late one has arrived`, async () => (await calls()) > before);
      await staysHeld(server, lock, way);
    }
    await server.stop();
  });

  test('a wait of a session that arrives after its connection has ended releases no lock', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, session: true, lease: LONG });
    for (const isLate of [true, false]) {
      await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', String(LONG));
      line.keep('BLOCK');
      const acquiring = dlock.acquire('job');
      await until('the wait is on its way', () => line.kept() > 0);
      line.drop();
      await untilWaiting(server.run, 'job', 1); // the repeat
      if (!isLate) line.deliver();
      await server.run('DLOCK.RELEASE', 'job', 'other');
      const lock = await acquiring;
      if (isLate) line.deliver();
      await staysHeld(server, lock, isLate ? 'behind the grant' : 'before the grant');
    }
    await server.stop();
  });

  test('a session does not wait for its own request that was granted without an answer', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { ...PATIENT, session: true, lease: LONG });
    line.delayEnds(1000);
    for (const keys of [['job'], ['job', 'other']]) {
      line.lose('SESSION');
      const lock = await dlock.acquireAll(keys, { wait: 0 });
      await sleep(1000);
      await staysHeld(server, lock, 'granted twice');
    }
    assert.equal(line.lost(), 2);
    await server.stop();
  });

  // The server still has the first copy in its queue. If it granted that, the lock would stay held for the grace.
  test('a wait of a session that is repeated after a silence leaves nothing in its own way', async () => {
    const server = await start({ options: ['--dlock.session-grace', '60000'] });
    const dlock = new DLock(await open({ at: server.port }), { session: true, outage: 12_000, lease: LONG });
    await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', String(LONG));
    const clients = async () => (await server.run('CLIENT', 'LIST')).split('\n').filter((each) => each).length;
    const before = await clients();
    const acquiring = dlock.acquire('job');
    await untilWaiting(server.run, 'job', 1);
    const waiting = () => clientsOf(server.run, 'job', 'queue', 'client');
    const [first] = await waiting();
    server.freeze();
    await sleep(6000); // it is asked after 4 s, for 1 s
    server.thaw();
    await until('the repeat waits alone', async () => {
      const [next, ...others] = await waiting();
      return next !== undefined && next !== first && others.length === 0;
    });
    await server.run('DLOCK.RELEASE', 'job', 'other');
    await settles(acquiring, 1000, 'the lock is free');
    await staysHeld(server, await acquiring, 'after the silence');
    await until('its connections are closed', async () => (await clients()) === before);
    await server.stop();
  });

  /** Acquires a lock, whose session ends. Returns it when the first command that binds it again is kept back. */
  async function unbound(server, line, options) {
    const lock = await new DLock(await open({ at: line.port }), options).acquire('job', { session: true, lease: LONG });
    const bound = async () => (await clientsOf(server.run, 'job', 'holds', 'session'))[0];
    const first = await bound();
    line.keep('SESSION');
    await server.run('CLIENT', 'KILL', 'ID', String(first));
    await until('a binding is on its way', () => line.kept() > 0);
    return { lock, bound, first };
  }

  test('a lock is lost if the connection of a binding ends before the answer', async () => {
    const server = await start({ options: ['--dlock.session-grace', '20000'] });
    const line = await wire(server.port);
    for (const isSlow of [false, true]) {
      const { lock, bound, first } = await unbound(server, line, { answer: isSlow ? ANSWER : 20_000 });
      // After the limit for an answer, another connection binds the lock.
      if (isSlow) await until('another one has bound it', async () => ![null, first].includes(await bound()));
      if (isSlow) await until('the client knows', () => lock.remaining > 0);
      line.drop();
      await until('the lock is lost', () => lock.signal.aborted);
      assert(lock.signal.reason instanceof LockLost && lock.remaining === 0);
      line.deliver();
      await server.run('DEL', 'job');
    }
    await server.stop();
  });

  test('a lock is bound again if a late binding moves it to a connection that ends', async () => {
    const server = await start({ options: ['--dlock.session-grace', '20000'] });
    const line = await wire(server.port);
    const { lock, bound, first } = await unbound(server, line, { answer: ANSWER });
    await until('another one has bound it', async () => ![null, first].includes(await bound()));
    const second = await bound();
    line.deliver();
    await until('the late one has arrived', async () => ![null, second].includes(await bound()));
    const late = await bound();
    await server.run('CLIENT', 'KILL', 'ID', String(late));
    await until('it is bound again', async () => ![null, late].includes(await bound()));
    await until('it is certain', () => lock.remaining > 0);
    assert(!lock.signal.aborted);
    assert.equal(await lock.release(), true);
    await server.stop();
  });

  test('a lock claims no more than the lease that a binding may still set', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { answer: ANSWER });
    const lock = await dlock.acquire('job', { session: true, lease: 2 * SHORT });
    line.keep('DLOCK.RENEW');
    server.freeze();
    await sleep(SHORT); // The client finds the lock's connection silent, and binds the lock to another one.
    server.thaw();
    await until('a binding is on its way', () => line.kept() > 0);
    await until('the server answers', () => lock.extend(LONG).then(() => true, () => false));
    line.deliver();
    await until('the binding arrives', async () => (await server.run('PTTL', 'job')) <= 2 * SHORT);
    assert(lock.remaining <= 2 * SHORT, `${lock.remaining} ms are left`);
    assert.equal(await lock.release(), true);
    await server.stop();
  });

  test('a lock claims no more than the lease that the renewal behind its grant may still set', async () => {
    const server = await start();
    const replica = await start({ options: ['--replicaof', '127.0.0.1', String(server.port)] });
    const isLinked = async () => (await replica.run('INFO', 'replication')).includes('master_link_status:up');
    await until('the replica is connected', isLinked);
    const line = await wire(server.port);
    const holder = await new DLock(await open({ at: server.port })).acquire('job');
    const dlock = new DLock(await open({ at: line.port }), { answer: ANSWER, replicas: 1, lease: 2 * SHORT });
    line.keep('DLOCK.RENEW');
    const waiting = dlock.acquire('job', { wait: 20_000 });
    await untilWaiting(server.run, 'job', 1);
    await holder.release();
    await until('the renewal is on its way', () => line.kept() > 0);
    line.drop();
    const lock = await waiting;
    await lock.extend(LONG);
    assert(lock.remaining <= 2 * SHORT, `${lock.remaining} ms are left`);
    line.deliver();
    await until('the renewal arrives', async () => (await server.run('PTTL', 'job')) <= 2 * SHORT);
    assert(lock.remaining <= 2 * SHORT, `${lock.remaining} ms are left`);
    assert.equal(await lock.release(), true);
    await replica.stop();
    await server.stop();
  });

  test('a lock whose connection has ended promises nothing until it is bound to another one', async () => {
    const server = await start({ options: ['--dlock.session-grace', '20000'] });
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { answer: 5000 });
    const lock = await dlock.acquire('job', { session: true, lease: LONG });
    const [first] = await clientsOf(server.run, 'job', 'holds', 'session');
    line.keep('SESSION');
    await server.run('CLIENT', 'KILL', 'ID', String(first));
    await until('a binding is on its way', () => line.kept() > 0);
    assert.equal(lock.remaining, 0, 'the server may have released the lock');
    assert(!lock.signal.aborted, 'nothing shows that the lock is lost');
    line.deliver();
    await until('the lock is bound again', () => lock.remaining > 0);
    assert.equal(await lock.release(), true);
    await server.stop();
  });

  test('a release while a binding is on its way finds the lock', async () => {
    const server = await start({ options: ['--dlock.session-grace', '20000'] });
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { answer: 5000 });
    const lock = await dlock.acquire('job', { session: true, lease: LONG });
    const bound = async () => (await clientsOf(server.run, 'job', 'holds', 'session'))[0];
    const first = await bound();
    line.keep('SESSION');
    await server.run('CLIENT', 'KILL', 'ID', String(first));
    await until('a binding is on its way', () => line.kept() > 0);
    // The server executes the binding, and its reply is late. The release, which is sent meanwhile, arrives late, too.
    line.delay(1000);
    line.deliver();
    await until('the server has bound the lock', async () => ![null, first].includes(await bound()));
    // Without a grace, the end of the new connection would release the lock before the release arrives.
    await server.run('CONFIG', 'SET', 'dlock.session-grace', '0');
    line.keep('DLOCK.RELEASE');
    const releasing = lock.release();
    await until('the release is on its way', () => line.kept() > 0);
    await sleep(100);
    assert.equal((await lookAt(server.run, 'job'))?.token, lock.token, 'only the release ends the hold');
    line.deliver();
    assert.equal(await releasing, true);
    await server.stop();
  });

  test('the disposal of a lock or of a session does not fail if the server is gone', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), { answer: ANSWER });
    const session = await openSession(await open({ at: server.port }));
    const lock = await dlock.acquire('dispose');
    await server.stop();
    await lock[Symbol.asyncDispose]();
    await session[Symbol.asyncDispose]();
  });

  test('a lock whose lease becomes shorter is renewed in time', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), { answer: 1500 });
    const shorter = 9000;
    for (const isAnswered of [true, false]) {
      await dlock.using('job', { lease: LONG }, async (signal, lock) => {
        if (!isAnswered) server.freeze();
        const extending = lock.extend(shorter);
        await (isAnswered ? extending : assert.rejects(extending, NoAnswer));
        server.thaw();
        await sleep(shorter + 1500);
        assert(!signal.aborted, String(signal.reason));
        assert(lock.remaining <= shorter);
      });
    }
    await server.stop();
  });

  test('a release of a lost lock says so, even if its reply is lost', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    for (const lease of [300, LONG]) {
      const lock = await dlock.acquire('job', { lease });
      if (lease === LONG) await server.run('DEL', 'job');
      if (lease === LONG) await assert.rejects(lock.extend(), LockLost);
      await until('the lock is lost', () => lock.signal.aborted);
      await until('another owner has the lock', async () => (await server.run('DLOCK.ACQUIRE', 'job', 'other')) > 0);
      line.lose('DLOCK.RELEASE');
      assert.equal(await lock.release(), false);
      assert.equal(line.lost(), lease === LONG ? 2 : 1); // one lost reply in each round
      assert.equal(await server.run('DEL', 'job'), 1);
    }
    await server.stop();
  });

  test('a release that is executed late, and whose reply is lost, has released the lock', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { answer: 20_000 });
    const lock = await dlock.acquire('job', { lease: LONG });
    line.lose('DLOCK.RELEASE');
    // The package's own connection sends nothing but its probe. ioredis connects again, and repeats the release itself.
    line.keep('DLOCK.CHECK');
    server.freeze();
    const releasing = lock.release();
    await sleep(500); // long enough for the package to make a connection of its own
    server.thaw();
    assert.equal(await releasing, true);
    assert.equal(line.lost(), 1);
    await server.stop();
  });

  test('a release without an answer ends in time, and leaves no hold and no connection', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), { answer: ANSWER });
    const clients = async () => (await server.run('CLIENT', 'LIST')).split('\n').filter((each) => each).length;
    const before = await clients();
    for (const way of [{}, { session: true }]) {
      const lock = await dlock.acquire('job', { lease: LONG, ...way });
      server.freeze();
      const releasing = lock.release();
      await settles(releasing, ANSWER + LATE, 'release');
      await assert.rejects(releasing, NoAnswer);
      assert.equal(lock.remaining, 0);
      server.thaw();
      await until('the lock is free', async () => (await lookAt(server.run, 'job')) === null);
      await until('the connections of the lock are closed', async () => (await clients()) === before);
      await (await dlock.acquire('job')).release();
    }
    await server.stop();
  });
});
