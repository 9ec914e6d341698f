/** Waits that are given up at the moment of the grant: the next owner gets the lock. */

import assert from 'node:assert/strict';
import net from 'node:net';

import { DLock, TooFewReplicas } from 'redis-dlock';

import { PATIENT, lookAt, sleep, test, until, untilWaiting, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** Longer than the tests take, in ms: a hold that nobody releases does not lapse meanwhile. */
const lease = 3_600_000;
const PX = ['PX', String(lease)];
/** How long the next owner waits for the lock, in ms. A busy machine needs a part of it; a hold lasts longer. */
const NEXT = 15_000;

/** Each way to wait: the lock that another owner holds meanwhile, the acquisition, and the limit of a semaphore. */
const WAYS = {
  plain: [['job'], (dlock, options) => dlock.acquire('job', options)],
  session: [['job'], (dlock, options) => dlock.acquire('job', { session: true, ...options })],
  read: [['job'], (dlock, options) => dlock.read('job', options)],
  permits: [['job'], (dlock, options) => dlock.semaphore('job', 2).acquire({ permits: 2, ...options }), '2'],
  several: [['more'], (dlock, options) => dlock.acquireAll(['job', 'more'], options)],
};

/** When the wait is given up, in ms after the release of the other owner (negative: before it), mostly close to it. */
function* offsets() {
  for (let ms = -1; ms < 2; ms += 0.1) yield ms;
  for (let ms = 2; ms < 8; ms += 1) yield ms;
}

/** Waits `ms` milliseconds, precise to some microseconds. */
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

  test('a wait that is aborted as the grant comes leaves no hold', async () => {
    const server = await start();
    await givesUpAroundTheGrant(server, new DLock(await open({ at: server.port }), PATIENT));
  });

  test('a wait that is aborted before a late reply with the grant leaves no hold', async () => {
    const server = await start();
    const line = await wire(server.port);
    line.delay(3);
    await givesUpAroundTheGrant(server, new DLock(await open({ at: line.port }), PATIENT));
  });

  test('a grant to a connection whose end comes late is released', async () => {
    const server = await start();
    const line = await wire(server.port);
    line.delayEnds(5000);
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    for (const way of Object.keys(WAYS)) {
      const { name, waiting, giveUp } = await held(server, dlock, way);
      giveUp();
      await assert.rejects(waiting, enough);
      await sleep(2500); // The client repeats its release 20 ms and 1 s after the abort, and then no more.
      await server.run('DLOCK.RELEASE', name, 'other');
      await nextGetsIt(server, way);
    }
  });

  test('a grant to a connection that the server is about to end is released', async () => {
    const server = await start();
    const dlock = new DLock(await open({ at: server.port }), PATIENT);
    for (const way of Object.keys(WAYS)) {
      const { name, waiting, giveUp } = await held(server, dlock, way);
      server.freeze();
      giveUp();
      await assert.rejects(waiting, enough);
      await sleep(100);
      // The thawed server accepts this connection in its first turn. In its second turn, it reads the end of the
      // waiting connection, and then this command, which grants the lock to the waiting connection: that is closed
      // after the turn.
      const other = net.connect(server.port, '127.0.0.1');
      await new Promise((resolve) => other.write(`DLOCK.RELEASE ${name} other\r\n`, resolve));
      await sleep(20);
      server.thaw();
      await nextGetsIt(server, way);
      other.destroy();
    }
  });

  test('a wait whose time is over as the grant comes leaves no hold', async () => {
    const server = await start();
    const line = await wire(server.port);
    line.delay(180); // longer than the 150 ms that a client waits for the last answer after the end of a wait
    const dlocks = [new DLock(await open({ at: server.port }), PATIENT), new DLock(await open({ at: line.port }), PATIENT)];
    for (const dlock of dlocks) {
      // The release comes between 2 ms after the end of the wait and 2 ms before it.
      for (let early = 0; early < 4; early += 0.25) {
        const wait = dlock === dlocks[0] ? 60 : 600; // in ms; replies through the wire are late
        await server.run('DLOCK.ACQUIRE', 'job', 'other', ...PX);
        const waiting = dlock.acquire('job', { lease, wait });
        waiting.catch(() => {});
        await spin(wait + 2 - early);
        await server.run('DLOCK.RELEASE', 'job', 'other');
        await waiting.then((lock) => lock.release(), (error) => assert.match(error.name, /NotGranted|NoAnswer/));
        await nextGetsIt(server, `the release is sent ${2 - early} ms after the end of the wait`);
      }
    }
  });

  test('a grant that too few replicas have, or that is given up meanwhile, is released on its server', async () => {
    const [before, now] = [await start(), await start()];
    const line = await wire(before.port);
    const client = await open({ at: line.port });
    // The program's client stays connected to a server that was replaced, as after a failover. New connections reach
    // `now`.
    line.lead(now.port);
    const dlock = new DLock(client, { ...PATIENT, lease, replicas: 1, replicasTimeout: 300 });
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
        const how = `${waits ? 'after a wait' : 'granted at once'}, ${givesUp ? 'given up' : 'too few replicas'}`;
        assert(token !== null, `the lock is still held: ${how}`);
        await now.run('DLOCK.RELEASE', 'job', 'next');
      }
    }
    await Promise.all([before.stop(), now.stop()]);
  });
});
