import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { DLock, NotGranted } from 'redis-dlock';
import { startServer } from 'redis-dlock/testing';
import { Redis } from 'ioredis';

test('a lease ends without waiting', async () => {
  const server = await startServer();
  const redis = new Redis(server.url);
  try {
    const dlock = new DLock(redis);
    const lock = await dlock.acquire('job', { lease: 60_000, renew: false });
    await assert.rejects(dlock.acquire('job', { wait: 0 }), NotGranted);
    await server.advance(61_000);
    const next = await dlock.acquire('job', { wait: 0 });
    assert(next.token > lock.token);
    await next.release();
  } finally {
    redis.disconnect();
    await server.close();
  }
});

test('a command that is not there, or does not start, is an error', async () => {
  await assert.rejects(startServer({ command: 'no-such-command' }), /ENOENT/);
  await assert.rejects(startServer({ options: ['--no-such-option'] }), /code 64/);
});

test('the start has a limit', async (t) => {
  const home = await mkdtemp(join(tmpdir(), 'dlock-'));
  const command = join(home, 'dlock');
  await writeFile(command, '#!/bin/sh\nexec sleep 60\n', { mode: 0o755 });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const starting = startServer({ command });
  t.mock.timers.tick(30_000);
  await assert.rejects(starting, /dlock serve ended/);
  await rm(home, { recursive: true });
});

test('a server that nobody closes ends with the program, and does not keep it running', async () => {
  const program = `import('redis-dlock/testing').then(({ startServer }) => startServer()).then(({ port }) => console.log(port))`;
  const port = Number(execFileSync(process.execPath, ['-e', program], { timeout: 20_000 }));
  await assert.rejects(once(connect(port, '127.0.0.1'), 'connect'), /ECONNREFUSED/);
});
