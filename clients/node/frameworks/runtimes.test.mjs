/** The programs of the README under Node.js, Bun and Deno: they wait, renew, keep sessions, and end by themselves. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const home = join(import.meta.dirname, '..');
const port = process.env.DLOCK_TEST_PORT;
const RUNTIMES = { node: [process.execPath], bun: ['bun', 'run'], deno: ['deno', 'run', '--allow-all', '--no-lock'] };

/** With each client: waits for a lock that another object holds, and tells of a loss. */
const PROGRAM = `
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { DLock, NotGranted } from 'redis-dlock';
const clients = [new Redis(), await createClient().connect()];
for (const client of clients) {
  const [dlock, other] = [new DLock(client), new DLock(clients[0])];
  const first = await other.acquire('runtime', { lease: 9000, renew: true });
  const next = dlock.acquire('runtime', { session: true, lease: 9000 });
  await dlock.acquire('runtime', { wait: 1000 }).catch((error) => {
    if (!(error instanceof NotGranted)) throw error;
  });
  await new Promise((resolve) => setTimeout(resolve, 9000)); // with the wait longer than the lease
  await first.release();
  const lock = await next;
  if (lock.token <= first.token) throw new Error('the token is not greater');
  await clients[0].del('runtime');
  await new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
  console.log('lost', lock.signal.reason.name);
}
clients[0].disconnect();
clients[1].destroy();
`;

async function programs() {
  const read = (await readdir(join(home, 'readme'))).map((file) => readFile(join(home, 'readme', file), 'utf8'));
  return [...(await Promise.all(read)), PROGRAM];
}

for (const [name, [command, ...words]] of Object.entries(RUNTIMES)) {
  test(`${name}: the programs run and end`, async () => {
    for (const [number, program] of (await programs()).entries()) {
      const file = join(home, `${name}-${number}.mjs`);
      const here = program
        .replaceAll('new Redis()', `new Redis(${port})`)
        .replaceAll('createClient()', `createClient({ socket: { host: '127.0.0.1', port: ${port} } })`);
      await writeFile(file, here);
      const run = promisify(execFile)(command, [...words, file], { timeout: 180_000, cwd: home });
      const { stdout, stderr } = await run.catch((error) => error);
      assert.equal(stderr, '', `${program}\n${stdout}`);
      assert.notEqual(stdout, '', program);
      if (program === PROGRAM) assert.equal(stdout, 'lost LockLost\nlost LockLost\n');
    }
  });
}
