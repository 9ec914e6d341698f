/** Waits that are given up in the moment of the grant: whoever comes next gets the lock. */

import assert from 'node:assert/strict';
import net from 'node:net';

import { DLock, TooFewReplicas } from 'redis-dlock';

import { lookAt, sleep, test, until, untilWaiting, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** Longer than the test: a hold that stays is not taken for one that has ended. */
const lease = 3_600_000;
const PX = ['PX', String(lease)];
/** How long the next one waits, in ms. A busy machine needs a part of it, and a hold that stays all of it. */
const NEXT = 15_000;

/** The acquisitions that wait, each with the lock that another owner holds meanwhile; the limit of a semaphore. */
const WAYS = {
  plain: [['job'], (dlock, options) => dlock.acquire('job', options)],
  session: [['job'], (dlock, options) => dlock.acquire('job', { session: true, ...options })],
  read: [['job'], (dlock, options) => dlock.read('job', options)],
  permits: [['job'], (dlock, options) => dlock.semaphore('job', 2).acquire({ permits: 2, ...options }), '2'],
  several: [['more'], (dlock, options) => dlock.acquireAll(['job', 'more'], options)],
};

/** Offsets from the release in ms, denser near it. */
function* offsets() {
  for (let ms = -1; ms < 2; ms += 0.1) yield ms;
  for (let ms = 2; ms < 8; ms += 1) yield ms;
}

/** Waits for this time, precise to some microseconds. */
async function spin(ms) {
  for (const end = performance.now() + ms; performance.now() < end; ) await new Promise(setImmediate);
}

withEachClient(({ open }) => {
  const enough = new Error('enough');

  /** Takes the lock for another owner, and begins an acquisition that waits for it. */
  async function held(server, dlock, way) {
    const [[name], acquire, limit] = WAYS[way];
    await server.run(limit ? 'DLOCK.SACQUIRE' : 'DLOCK.ACQUIRE', name, 'other', ...(limit ? [limit] : []), ...PX);
    const stop = new AbortController();
    const waiting = acquire(dlock, { lease, signal: stop.signal });
    waiting.catch(() => {});
    await untilWaiting(server.run, name, 1);
    return { name, waiting, giveUp: () => stop.abort(enough) };
  }

  /** Checks that the next owner gets the locks. */
  async function nextGetsIt(server, what) {
    for (const name of ['job', 'more']) {
      const token = await server.run('DLOCK.ACQUIRE', name, 'next', ...PX, 'BLOCK', String(NEXT));
      assert(token !== null, `${what}: ${name} is still held`);
      await server.run('DLOCK.RELEASE', name, 'next');
    }
  }

  async function givesUpAroundTheGrant(server, dlock) {
    for (const offset of offsets()) {
      for (const way of Object.keys(WAYS)) {
        const { name, waiting, giveUp } = await held(server, dlock, way);
        const release = () => server.run('DLOCK.RELEASE', name, 'other');
        let releasing;
        if (offset < 0) giveUp();
        else releasing = release();
        await spin(Math.abs(offset));
        if (offset < 0) releasing = release();
        else giveUp();
        await releasing;
        await waiting.then((lock) => lock.release(), (error) => assert.equal(error, enough));
        await nextGetsIt(server, `${way}, ${offset} ms`);
      }
    }
  }

  test('a wait that is aborted as the grant comes', async () => {
    const server = await start();
    await givesUpAroundTheGrant(server, new DLock(await open({ at: server.port })));
  });

  test('a wait that is aborted before a late grant is heard', async () => {
    const server = await start();
    const line = await wire(server.port);
    line.delay(3);
    await givesUpAroundTheGrant(server, new DLock(await open({ at: line.port })));
  });

  test('a grant to a connection whose end comes late is released', async () => {
    const server = await start();
    const line = await wire(server.port);
    line.delayEnds(5000);
    const dlock = new DLock(await open({ at: line.port }));
    for (const way of Object.keys(WAYS)) {
      const { name, waiting, giveUp } = await held(server, dlock, way);
      giveUp();
      await assert.rejects(waiting, enough);
      await sleep(2500); // The client no longer repeats the release.
      await server.run('DLOCK.RELEASE', name, 'other');
      await nextGetsIt(server, way);
    }
  });

  test('a grant to a connection that the server is about to end is released', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }));
    for (const way of Object.keys(WAYS)) {
      const { name, waiting, giveUp } = await held(server, dlock, way);
      server.freeze();
      giveUp();
      await assert.rejects(waiting, enough);
      await sleep(100);
      // The server accepts this connection in its first turn. In the second it reads the end of the connection that
      // waits, which it closes after that turn only, and this command, which grants the lock to that connection.
      const other = net.connect(server.port, '127.0.0.1');
      await new Promise((resolve) => other.write(`DLOCK.RELEASE ${name} other\r\n`, resolve));
      await sleep(20);
      server.thaw();
      await nextGetsIt(server, way);
      other.destroy();
    }
  });

  test('a wait whose time is over as the grant comes', async () => {
    const server = await start();
    const line = await wire(server.port);
    line.delay(180); // longer than the client expects the last answer after the end of a wait (150 ms)
    const dlocks = [new DLock(await open({ at: server.port })), new DLock(await open({ at: line.port }))];
    for (const dlock of dlocks) {
      for (let early = 0; early < 4; early += 0.25) {
        const wait = dlock === dlocks[0] ? 60 : 600;
        await server.run('DLOCK.ACQUIRE', 'job', 'other', ...PX);
        const waiting = dlock.acquire('job', { lease, wait });
        waiting.catch(() => {});
        await spin(wait + 2 - early);
        await server.run('DLOCK.RELEASE', 'job', 'other');
        await waiting.then((lock) => lock.release(), (error) => assert.match(error.name, /NotGranted|NoAnswer/));
        await nextGetsIt(server, `${early} ms early`);
      }
    }
  });

  test('what too few replicas have, or is given up meanwhile, is released where it was granted', async () => {
    const [before, now] = [await start(), await start()];
    const line = await wire(before.port);
    const client = await open({ at: line.port });
    // The client of the program stays with a server that has been replaced, as after a failover.
    line.lead(now.port);
    const dlock = new DLock(client, { lease, replicas: 1, replicasTimeout: 300 });
    for (const waits of [false, true]) {
      for (const givesUp of [false, true]) {
        const stop = new AbortController();
        if (waits) await now.run('DLOCK.ACQUIRE', 'job', 'other', ...PX);
        const acquiring = dlock.acquire('job', { wait: NEXT, signal: stop.signal });
        acquiring.catch(() => {});
        if (waits) {
          await untilWaiting(now.run, 'job', 1);
          await now.run('DLOCK.RELEASE', 'job', 'other');
        }
        await until('the lock is granted', async () => (await lookAt(now.run, 'job'))?.holders === 1);
        if (givesUp) stop.abort(enough);
        await assert.rejects(acquiring, (error) => error instanceof TooFewReplicas || (givesUp && error === enough));
        const token = await now.run('DLOCK.ACQUIRE', 'job', 'next', ...PX, 'BLOCK', String(NEXT));
        assert(token !== null, `it is still held: ${waits ? 'waited' : 'at once'}, ${givesUp ? 'given up' : 'too few'}`);
        await now.run('DLOCK.RELEASE', 'job', 'next');
      }
    }
    await Promise.all([before.stop(), now.stop()]);
  });
});
