/** An acquisition that is given up leaves no connection, and lets the program end. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';

import { DLock, NoAnswer } from 'redis-dlock';

import { openSession, settles, test, until, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** Returns how many connections a server has. */
async function connections(run) {
  return (await run('CLIENT', 'LIST')).split('\n').filter((line) => line).length;
}

withEachClient(({ kind, open }) => {
  const WAYS = { wait: {}, connection: { session: true }, replicas: { replicas: 1 } };

  for (const [way, options] of Object.entries(WAYS)) {
    test(`300 acquisitions that are aborted while they connect leave no connection: ${way}`, async () => {
      const server = await start();
      const dlock = new DLock(await open({ at: server.port }));
      await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '600000');
      const before = await connections(server.run);
      for (let round = 0; round < 300; round += 1) {
        const stop = new AbortController();
        const acquiring = dlock.acquire('job', { ...options, signal: stop.signal });
        acquiring.catch(() => {});
        // Each round aborts at another step of connecting, after 0 to 11 turns of the event loop.
        for (let turn = 0; turn < round % 12; turn += 1) await new Promise(setImmediate);
        stop.abort(new Error('enough'));
        await assert.rejects(acquiring, /enough/);
      }
      await until('no connection is left', async () => (await connections(server.run)) === before);
      await server.stop();
    });
  }

  test('a wait whose time is over while it connects leaves no connection', async () => {
    const server = await start();
    const line = await wire(server.port);
    const dlock = new DLock(await open({ at: line.port }), { answer: 100 });
    await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '600000');
    const before = await connections(server.run);
    line.hold();
    const waits = Array.from({ length: 20 }, (_, at) => dlock.acquire('job', { wait: 20 * at }));
    for (const { reason } of await Promise.allSettled(waits)) assert(reason instanceof NoAnswer, String(reason));
    line.mend();
    await until('no connection is left', async () => (await connections(server.run)) <= before);
    await server.stop();
  });

  test('a session whose heartbeats fail leaves no connection', async () => {
    const server = await start();
    const line = await wire(server.port);
    const client = await open({ at: line.port });
    const before = await connections(server.run);
    const session = await openSession(client, { timeout: 1000 });
    line.hold();
    await until('the session is lost', async () => session.lost.aborted);
    line.mend();
    await session.close();
    await until('no connection is left', async () => (await connections(server.run)) <= before);
    await server.stop();
  });

  test('a program that has given up acquisitions ends', async () => {
    const server = await start();
    await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '600000');
    const made = {
      ioredis: `import { Redis } from 'ioredis'; const client = new Redis(${server.port});`,
      'node-redis': `import { createClient } from 'redis';
        const client = await createClient({ socket: { host: '127.0.0.1', port: ${server.port} } }).connect();`,
    };
    const program = `${made[kind]}
      import { DLock } from 'redis-dlock';
      const dlock = new DLock(client);
      for (let round = 0; round < 30; round += 1) {
        const stop = new AbortController();
        const acquiring = dlock.acquire('job', { signal: stop.signal, session: round % 2 === 0 });
        acquiring.catch(() => {});
        for (let turn = 0; turn < round % 12; turn += 1) await new Promise(setImmediate);
        stop.abort();
        await acquiring.catch(() => {});
      }
      ${kind === 'ioredis' ? 'client.disconnect()' : 'client.destroy()'};
      console.log('over');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      await once(child.stdout, 'data');
      const ended = once(child, 'exit');
      // The client may go on releasing what it gave up for 3 s.
      await settles(ended, 4000, 'the end of the program');
      assert.deepEqual(await ended, [0, null]);
    } finally {
      child.kill('SIGKILL');
    }
    await server.stop();
  });
}, { concurrency: 3 });
