/** The worker of `make rivals` for Node.js: redlock, redis-semaphore, and ours. run.py says what it is asked. */

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { DLock } from 'redis-dlock';
import { Mutex } from 'redis-semaphore';
import redlock from 'redlock';

const [LEASE, NAME, GAP, WORK] = [10_000, 'rivals', 40, 5];
const [mode, port, kind, waiters] = process.argv.slice(2);
const Redlock = redlock.default ?? redlock;
const now = () => Number(process.hrtime.bigint());

/** Each takes a client and returns a function that acquires. That one returns a function that releases. */
const KINDS = {
  redlock(client) {
    const all = new Redlock([client], { retryCount: -1 });
    return async () => {
      const lock = await all.acquire([NAME], LEASE);
      return () => lock.release();
    };
  },
  'redis-semaphore': (client) => async () => {
    const mutex = new Mutex(client, NAME, { lockTimeout: LEASE, acquireTimeout: 600_000 });
    await mutex.acquire();
    return () => mutex.release();
  },
  'dlock-node': (client) => ours(client, { lease: LEASE, renew: true }),
  'dlock-node-session': (client) => ours(client, { session: true }),
};

function ours(client, settings) {
  const dlock = new DLock(client);
  return async () => {
    const lock = await dlock.acquire(NAME, settings);
    return () => lock.release();
  };
}

async function waitInTurn(acquire) {
  const asked = now();
  const release = await acquire();
  const granted = now();
  await sleep(WORK);
  const released = now();
  await release();
  return [asked, granted, released];
}

/** Lets the clients join the queue while the first one holds; each has its turn then. */
async function play([first, ...locks]) {
  const release = await first();
  const waits = [];
  for (const acquire of locks) {
    waits.push(waitInTurn(acquire));
    await sleep(GAP);
  }
  const released = now();
  await release();
  return { released, waiters: await Promise.all(waits) };
}

const make = () => KINDS[kind](new Redis({ port: Number(port) }));
if (mode === 'line') {
  const locks = Array.from({ length: Number(waiters) + 1 }, make);
  console.log('ready');
  for await (const line of createInterface({ input: process.stdin })) {
    const rounds = [];
    for (let round = 0; round < Number(line); round += 1) rounds.push(await play(locks));
    console.log(JSON.stringify(rounds));
  }
  process.exit();
}
const acquire = make();
console.log('asks');
await acquire();
console.log('has it');
process.stdin.resume();
