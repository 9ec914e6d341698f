import assert from 'node:assert/strict';
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
