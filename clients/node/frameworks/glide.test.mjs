/** Locks through a client of Valkey GLIDE, with GLIDE itself. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { GlideClient, GlideClusterClient, Logger } from '@valkey/valkey-glide';
import { DLock, LockLost, NotGranted, Session } from 'redis-dlock';
import { Mutex } from 'redis-dlock/semaphore';

import { readme } from './programs.mjs';
import { until } from './until.mjs';

Logger.setLoggerConfig('off');
const opened = [];
after(() => opened.forEach((client) => client.close()));

async function open(options = {}, port = process.env.DLOCK_TEST_PORT) {
  const client = await GlideClient.createClient({ addresses: [{ host: '127.0.0.1', port: Number(port) }], ...options });
  opened.push(client);
  return client;
}

/** A server on a busy machine answers late. */
const PATIENT = { answer: 20_000 };

const waiting = async (client, key) => {
  const info = await client.customCommand(['DLOCK.INFO', key]);
  return info?.find((field) => field.key === 'waiters').value ?? 0;
};

test('a wait is longer than the timeout of requests, and holds up no other command', async () => {
  const client = await open();
  const dlock = new DLock(client, PATIENT);
  const first = await dlock.acquire('glide');
  const next = dlock.acquire('glide');
  await until('it waits', async () => (await waiting(client, 'glide')) === 1);
  for (const end = Date.now() + 1000; Date.now() < end; ) assert.equal(await client.customCommand(['PING']), 'PONG');
  assert.equal(await waiting(client, 'glide'), 1);
  await first.release();
  const lock = await next;
  assert(lock.token > first.token);
  assert.equal((await dlock.holder('glide')).token, lock.token);
  assert.equal(await lock.release(), true);
  assert.equal(await client.customCommand(['EXISTS', 'glide']), 0);
});

test('a wait that is given up leaves the queue, and one whose connection is killed joins it again', async () => {
  const client = await open();
  const dlock = new DLock(client, PATIENT);
  const first = await dlock.acquire('given-up');
  await assert.rejects(dlock.acquire('given-up', { wait: 1000 }), NotGranted);
  const aborting = new AbortController();
  const aborted = dlock.acquire('given-up', { signal: aborting.signal });
  await until('it waits', async () => (await waiting(client, 'given-up')) === 1);
  aborting.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);
  await until('it has left', async () => (await waiting(client, 'given-up')) === 0);
  const killed = dlock.acquire('given-up');
  await until('it waits', async () => (await waiting(client, 'given-up')) === 1);
  const [, id] = /id=(\d+)[^\n]*cmd=dlock.acquire/.exec(await client.customCommand(['CLIENT', 'LIST']));
  await client.customCommand(['CLIENT', 'KILL', 'ID', id]);
  await until('it waits again', async () => (await waiting(client, 'given-up')) === 1);
  await first.release();
  await (await killed).release();
  assert.equal(await client.customCommand(['EXISTS', 'given-up']), 0);
});

test('a wait that is given up leaves no hold, even if its connection cannot be killed', async () => {
  const admin = await open();
  await admin.customCommand(['ACL', 'SETUSER', 'ann', 'on', '>secret', '~*', '&*', '+@all', '-client|kill']);
  const dlock = new DLock(await open({ credentials: { username: 'ann', password: 'secret' } }), PATIENT);
  const first = await dlock.acquire('ghost');
  const aborting = new AbortController();
  const aborted = dlock.acquire('ghost', { signal: aborting.signal });
  await until('it waits', async () => (await waiting(admin, 'ghost')) === 1);
  aborting.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);
  await new Promise((resolve) => setTimeout(resolve, 1500)); // later than all that cleans up
  await first.release();
  await until('the lock is free', async () => (await admin.customCommand(['EXISTS', 'ghost'])) === 0);
  await until('no connection waits', async () => !/flags=b/.test(await admin.customCommand(['CLIENT', 'LIST'])));
});

test('using renews, sessions keep, and a loss is told', async () => {
  const client = await open();
  const dlock = new DLock(client, PATIENT);
  await dlock.using('using', { lease: 9000 }, async (signal) => {
    await new Promise((resolve) => setTimeout(resolve, 9500)); // longer than the lease
    signal.throwIfAborted();
  });
  const session = new Session(client, { timeout: 9000 });
  await until('it is open', () => session.open().then(() => true, () => false)); // an answer may come too late
  const lock = await dlock.acquire('kept', { session });
  await client.customCommand(['DEL', 'kept']);
  await until('it is told', async () => lock.signal.aborted);
  assert(lock.signal.reason instanceof LockLost);
  await session.close();
  const [all, slot] = [await dlock.acquireAll(['{g}1', '{g}2']), await dlock.semaphore('pool', 2).acquire({ slot: true })];
  assert.equal(slot.slot, 0);
  await Promise.all([all.release(), slot.release()]);
});

test('a database, and the classes of redis-semaphore', async () => {
  const client = await open({ databaseId: 3 });
  const [first, second] = [0, 1].map(() => new Mutex(client, 'name'));
  await first.acquire();
  const next = second.acquire();
  await until('it waits in the database', async () => (await waiting(client, 'mutex:name')) === 1);
  await first.release();
  await next;
  assert.equal(await (await open()).customCommand(['EXISTS', 'mutex:name']), 0);
  await second.release();
});

test('errors are those of the server', async () => {
  const client = await open();
  const dlock = new DLock(client, PATIENT);
  await client.set('text', 'old');
  await assert.rejects(dlock.acquire('text', { wait: 0 }), NotGranted);
  await client.customCommand(['ACL', 'SETUSER', 'joe', 'on', '>secret', '~*', '&*', '+@all', '-dlock.acquire']);
  const joe = await open({ credentials: { username: 'joe', password: 'secret' } });
  await assert.rejects(new DLock(joe, PATIENT).acquire('job'), /^Error: NOPERM /);
  const bare = await open({}, process.env.DLOCK_TEST_BARE_PORT);
  await assert.rejects(new DLock(bare, PATIENT).acquire('job'), /is the dlock module loaded/);
});

test('what cannot be kept is refused', async () => {
  const client = await open();
  const dlock = new DLock(client, PATIENT);
  await assert.rejects(dlock.acquire('job', { session: true }), TypeError);
  await assert.rejects(dlock.acquire('job', { replicas: 1 }), TypeError);
  await assert.rejects(dlock.watch('job').next(), TypeError);
  assert.throws(() => new DLock(Object.create(GlideClusterClient.prototype)), /GlideClusterClient is not supported/);
  assert.throws(() => new DLock(Object.create(GlideClient.prototype)), /does not tell its configuration/);
  client.close();
  opened.splice(opened.indexOf(client), 1);
  await assert.rejects(dlock.acquire('job'), /the client is closed/);
});

test('the program of the README runs', async () => {
  const { stdout } = await readme('glide', 'GlideClient');
  assert.match(stdout, /^the fencing token is \d+\n$/);
});
