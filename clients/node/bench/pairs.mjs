/**
 * Acquires and releases a lock again and again: what a pair costs the processor. Called by lab/packages/run.py with PORT
 * KIND PAIRS. `plain` is SET NX and a script that deletes, over the same ioredis.
 */

import { randomUUID } from 'node:crypto';

import { Redis } from 'ioredis';
import { DLock } from 'redis-dlock';

const DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const [port, kind, pairs] = process.argv.slice(2);

const client = new Redis({ port: Number(port) });
client.defineCommand('deleteIfEqual', { numberOfKeys: 1, lua: DELETE });
const dlock = new DLock(client);
const KINDS = {
  async plain() {
    const owner = randomUUID();
    await client.set('pairs', owner, 'PX', 30_000, 'NX');
    await client.deleteIfEqual('pairs', owner);
  },
  lease: async () => (await dlock.acquire('pairs')).release(),
  kept: async () => (await dlock.acquire('pairs', { renew: true })).release(),
};

async function play(times) {
  for (let i = 0; i < times; i += 1) await KINDS[kind]();
}

await play(Math.max(1000, pairs / 10)); // until it is compiled
const [before, began] = [process.cpuUsage(), performance.now()];
await play(Number(pairs));
const { user, system } = process.cpuUsage(before);
console.log(user + system, Math.round((performance.now() - began) * 1000));
client.disconnect();
