/** Tests of `Session`: one heartbeat, sent by the program's own client, keeps all locks of the program. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DLock, LockLost, NoAnswer, Session } from 'redis-dlock';

import { host, lookAt, port, reasonOf, settles, sleep, test } from './fixture.js';
import { PATIENT, openSession, until, untilWaiting, wire, withEachClient } from './fixture.js';
import { freePort, primaryAndReplica, start } from './servers.js';

/** Returns the keys of the locks that the server has bound to a session, in order. */
async function boundTo(run, session) {
  const listed = (await run('DLOCK.SESSION', session.id, 'LIST', 'COUNT', '0')) ?? [];
  return listed.map(([, key]) => key).sort();
}

/** Returns how often the server has run a command of the module since the last `CONFIG RESETSTAT`. */
async function calls(run, name) {
  const stats = await run('INFO', 'commandstats');
  return Number(new RegExp(`cmdstat_dlock\\.${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}

/** Fails if one of the locks is held. Keys may still exist: the server deletes those of an ended session in pieces. */
async function areFree(run, keys) {
  for (const key of keys) assert.equal(await run('DLOCK.INFO', key), null, key);
}

const names = (number) => Array.from({ length: number }, (_, at) => `job:${at}`);

withEachClient(({ kind, key, run, open, close }) => {
  async function opened(options, client) {
    const own = client ?? (await open());
    const session = await openSession(own, options);
    return { session, dlock: new DLock(own, { ...PATIENT, session }), client: own };
  }

  test('one heartbeat keeps all locks', async () => {
    const server = await start();
    const { session, dlock } = await opened({ timeout: 6000 }, await open({ at: server.port }));
    const locks = await Promise.all(names(40).map((name) => dlock.acquire(name, { lease: 30_000 })));
    const ttl = async () => Number(await server.run('PTTL', 'job:0'));
    assert((await ttl()) > 20_000, 'a longer lease stays');
    const short = await dlock.acquire('short', { lease: 1000 });
    assert(Number(await server.run('PTTL', 'short')) > 16_000, 'a lease is at least three times the timeout');
    await server.run('CONFIG', 'RESETSTAT');
    const began = performance.now();
    await until('3 s of the lease pass', async () => Number(await server.run('PTTL', 'short')) < 15_000);
    await until('the server renews the lease', async () => Number(await server.run('PTTL', 'short')) > 16_000);
    const beats = await calls(server.run, 'session');
    // A heartbeat is due every 2 s. One that is late on a busy machine is repeated.
    assert(beats >= 1 && beats <= (performance.now() - began) / 1000 + 5, `${beats} heartbeats`);
    assert.equal(await calls(server.run, 'renew'), 0);
    for (const lock of [...locks, short]) assert(!lock.signal.aborted && lock.remaining > 0 && lock.remaining <= 6000);
    assert.equal(await short.release(), true);
    await session.close();
    await areFree(server.run, names(40));
    await server.stop();
  });

  test('the lease of a lock in a session fits a max-lease and a max-hold of three timeouts', async () => {
    const server = await start({ options: ['--dlock.max-lease', '27000', '--dlock.max-hold', '27000'] });
    const { session, dlock } = await opened({ timeout: 9000 }, await open({ at: server.port }));
    const lock = await dlock.acquire('job');
    // A token is the time of the grant in µs. The cap keeps the server from moving the end of the lease.
    const lease = Number(await server.run('PEXPIRETIME', 'job')) - Math.floor(lock.token / 1000);
    assert(Math.abs(lease - 27_000) <= 1, `${lease} ms`);
    await lock.release();
    await session.close();
    await server.stop();
  });

  test('closing frees everything in one command', async () => {
    const server = await start();
    // With this timeout, no heartbeat is due during the test.
    const { session, dlock } = await opened({ timeout: 120_000 }, await open({ at: server.port }));
    const locks = await Promise.all(names(20).map((name) => dlock.acquire(name)));
    await server.run('CONFIG', 'RESETSTAT');
    await session.close();
    await areFree(server.run, names(20));
    assert.deepEqual([await calls(server.run, 'session'), await calls(server.run, 'release')], [1, 0]);
    for (const lock of locks) assert(lock.signal.reason instanceof LockLost && lock.remaining === 0);
    assert(!session.lost.aborted && !session.isOpen);
    await assert.rejects(dlock.acquire('job'), /the session is not open: it was closed/);
    await assert.rejects(session.open(), /opened once/);
    await session.close();
    await server.stop();
  });

  test('locks outlive the connections of the client', async () => {
    const server = await start();
    const { session, dlock } = await opened({ timeout: 12_000 }, await open({ at: server.port }));
    const lock = await dlock.acquire('job');
    for (let round = 0; round < 3; round += 1) {
      await server.run('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      const before = await calls(server.run, 'session');
      await until('a heartbeat follows', async () => (await calls(server.run, 'session')) > before);
    }
    assert(!lock.signal.aborted && !session.lost.aborted);
    assert.equal((await lookAt(server.run, 'job')).token, lock.token);
    await session.close();
    await server.stop();
  });

  test('the locks are lost when the server hangs for the timeout', async () => {
    const server = await start();
    const { session, dlock } = await opened({ timeout: 6000 }, await open({ at: server.port }));
    const lock = await dlock.acquire('job');
    server.freeze();
    // The timeout, and 250 ms for the program. The last confirmed heartbeat may be as old as a third of the timeout.
    const took = await settles(Promise.all([reasonOf(lock.signal), reasonOf(session.lost)]), 6250, 'the loss');
    assert(took > 3000, `lost after ${took} ms`);
    assert(lock.signal.reason instanceof LockLost && session.lost.reason instanceof LockLost);
    assert.equal(lock.remaining, 0);
    await assert.rejects(dlock.acquire('other'), /no heartbeat was confirmed/);
    await session.close();
    server.thaw();
    await until('the server ends the session, too', async () => (await lookAt(server.run, 'job')) === null);
    await server.stop();
  });

  test('no lock is lost when the server hangs for less than the timeout', async () => {
    const server = await start();
    const { session, dlock } = await opened({ timeout: 6000 }, await open({ at: server.port }));
    const lock = await dlock.acquire('job');
    server.freeze();
    await sleep(2500);
    server.thaw();
    const before = await calls(server.run, 'session');
    await until('heartbeats go on', async () => (await calls(server.run, 'session')) > before + 1);
    assert(!lock.signal.aborted);
    await session.close();
    await server.stop();
  });

  test('after a restart locks are bound again or lost', async () => {
    const at = await freePort();
    const home = await mkdtemp(join(tmpdir(), 'dlock-'));
    const options = ['--dir', home, '--appendonly', 'yes', '--appendfsync', 'always'];
    const before = await start({ options, port: at });
    const { session, dlock } = await opened({ timeout: 12_000 }, await open({ at }));
    const [kept, gone] = [await dlock.acquire('kept'), await dlock.acquire('gone')];
    await before.stop();
    const server = await start({ options, port: at });
    await until('the server has loaded its data', async () => {
      try {
        return (await server.run('DEL', 'gone')) === 1;
      } catch {
        return false;
      }
    });
    assert((await reasonOf(gone.signal)) instanceof LockLost);
    await until('`kept` is bound again', async () => String(await boundTo(server.run, session)) === 'kept');
    assert(!kept.signal.aborted && !session.lost.aborted);
    assert.equal((await lookAt(server.run, 'kept')).token, kept.token);
    await dlock.acquire('new');
    await session.close();
    assert.equal(await server.run('DBSIZE'), 0);
    await server.stop();
    await rm(home, { recursive: true, force: true });
  });

  test('after a failover locks are bound on the next primary', async () => {
    const { primary, replica } = await primaryAndReplica();
    const line = await wire(primary.port);
    const { session, dlock } = await opened({ timeout: 40_000 }, await open({ at: line.port }));
    // More locks than a session binds in one exchange, which is 100.
    const locks = await Promise.all(names(120).map((name) => dlock.acquire(name)));
    const [last] = locks.slice(-1);
    await until('the replica has the locks', async () => (await lookAt(replica.run, 'job:119'))?.token === last.token);
    primary.freeze();
    await replica.run('REPLICAOF', 'NO', 'ONE');
    await replica.run('DEL', 'job:7');
    line.lead(replica.port);
    await until('the other locks are bound', async () => (await boundTo(replica.run, session)).length === 119);
    await reasonOf(locks[7].signal);
    assert.equal(locks.filter(({ signal }) => signal.aborted).length, 1);
    await session.close();
    await Promise.all([primary.stop(), replica.stop()]);
  });

  test('a deleted lock is lost with the next heartbeat', async () => {
    const { session, dlock } = await opened({ timeout: 15_000 });
    const [lock, other] = [await dlock.acquire(key('deleted')), await dlock.acquire(key('kept'))];
    await run('DEL', key('deleted'));
    await settles(reasonOf(lock.signal), 10_000, 'the loss');
    assert(!other.signal.aborted);
    assert.equal(await lock.release(), false);
    await session.close();
  });

  test('a deleted lock is lost within the timeout, even if the server binds nothing', async () => {
    const server = await start();
    const { session, dlock } = await opened({ timeout: 6000 }, await open({ at: server.port }));
    const lock = await dlock.acquire('job');
    await server.run('DEL', 'job');
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await settles(reasonOf(lock.signal), 6250, 'the loss');
    assert.match(lock.signal.reason.message, /it was not bound to the session again in time/);
    assert(session.isOpen && !session.lost.aborted);
    await session.close();
    await server.stop();
  });

  test('a session that an operator closed is opened again', async () => {
    const { session, dlock } = await opened({ timeout: 15_000 });
    const lock = await dlock.acquire(key('closed'));
    await run('DLOCK.SESSION', session.id, 'CLOSE');
    const other = await dlock.acquire(key('finds out'), { wait: 0 });
    assert((await reasonOf(lock.signal)) instanceof LockLost);
    assert.deepEqual(await boundTo(run, session), [key('finds out')]);
    assert(session.isOpen && !other.signal.aborted);
    await session.close();
  });

  test('an acquisition waits again when its session on the server ends', async () => {
    const { session, dlock } = await opened({ timeout: 9000 });
    await run('DLOCK.ACQUIRE', key('wait'), 'somebody');
    const acquiring = dlock.acquire(key('wait'));
    for (let round = 0; round < 2; round += 1) {
      await untilWaiting(run, key('wait'), 1);
      await run('DLOCK.SESSION', session.id, 'CLOSE');
    }
    await untilWaiting(run, key('wait'), 1);
    await run('DLOCK.RELEASE', key('wait'), 'somebody');
    const lock = await acquiring;
    assert.deepEqual(await boundTo(run, session), [key('wait')]);
    assert(lock.remaining > 0);
    await session.close();
  });

  test('a release that failed is repeated', async () => {
    const server = await start();
    const { session, dlock } = await opened({ timeout: 9000 }, await open({ at: server.port }));
    const lock = await dlock.acquire('job');
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await assert.rejects(lock.release(), /NOREPLICAS/);
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '0');
    await until('the session releases the lock', async () => (await lookAt(server.run, 'job')) === null);
    assert(session.isOpen);
    await session.close();
    await server.stop();
  });

  test('only beats keep a manual session', async () => {
    const { session, dlock } = await opened({ timeout: 6000, manual: true });
    const lock = await dlock.acquire(key('manual'));
    // 8 s of beats are longer than the timeout.
    for (const end = performance.now() + 8000; performance.now() < end; await sleep(50)) session.beat();
    assert(!lock.signal.aborted);
    await settles(reasonOf(lock.signal), 7500, 'the loss');
    await until('the server frees the lock', async () => (await lookAt(run, key('manual'))) === null);
    await session.close();
  });

  test('all kinds of locks use the session', async () => {
    const { session, dlock } = await opened({ timeout: 12_000 });
    const permit = await dlock.semaphore(key('pool'), 5).acquire({ permits: 3 });
    const both = await dlock.acquireAll([key('a'), key('b')]);
    const read = await dlock.read(key('doc'), { lease: 60_000 });
    assert.deepEqual(await boundTo(run, session), ['a', 'b', 'doc', 'pool'].map(key));
    await read.extend(3);
    assert(Number(await run('PTTL', key('doc'))) > 30_000, 'an extension of 3 ms leaves three timeouts');
    assert.equal(await dlock.using(key('used'), async (signal) => signal.aborted), false);
    await run('DEL', key('b'));
    await reasonOf(both.signal);
    assert(!permit.signal.aborted && (await permit.release()));
    await session.close();
    assert.equal(await lookAt(run, key('doc')), null);
  });

  test('bad options, a session of another client and one that is not open are refused', async () => {
    const client = await open();
    for (const timeout of [299, 3_600_001, '3000']) assert.throws(() => new Session(client, { timeout }), /timeout/);
    assert.throws(() => new Session(client, { manual: 1 }), /manual/);
    const other = new Session(await open());
    assert.throws(() => new DLock(client, { session: other }), /another client/);
    const session = new Session(client);
    await assert.rejects(new DLock(client, { session }).acquire(key('new')), /it was not opened/);
  });

  test('a session does not open if the server hangs, lacks the module, or the client is closed', async () => {
    const server = await start();
    const client = await open({ at: server.port });
    const session = new Session(client);
    server.freeze();
    // `open` gives up after 1150 ms (SESSION in limits.js).
    await settles(assert.rejects(session.open(), NoAnswer), 1250, 'opening');
    server.thaw();
    assert.equal(await session.open(), session);
    await session.close();
    const plain = await start({ withModule: false });
    await assert.rejects(new Session(await open({ at: plain.port })).open(), /module loaded/);
    close(client);
    await until('the client is closed', async () => kind !== 'ioredis' || client.status === 'end');
    await assert.rejects(new Session(client).open(), /client is closed/);
    await Promise.all([server.stop(), plain.stop()]);
  });

  test('a program that dies or hangs loses its lock when its session times out', async () => {
    const program = `
      import { Redis } from 'ioredis';
      import { DLock, Session } from 'redis-dlock';
      const redis = new Redis(${port}, '${host}');
      const session = new Session(redis, { timeout: 6000 });
      while (!session.isOpen) await session.open().catch(() => {}); // on a busy machine, the answer may come too late
      const lock = await new DLock(redis, { session, answer: 20_000 }).acquire('${key('hold')}');
      lock.signal.addEventListener('abort', () => console.log('lost'));
      console.log('held');`;
    for (const signal of ['SIGKILL', 'SIGSTOP']) {
      const words = ['--input-type=module', '-e', program];
      const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      assert.equal((await lines.next()).value, 'held');
      child.kill(signal);
      const acquiring = new DLock(await open(), PATIENT).acquire(key('hold'));
      // The timeout, 200 ms within which the server notices its end, and 100 ms for the grant.
      await settles(acquiring, 6000 + 200 + 100, signal);
      if (signal === 'SIGSTOP') {
        child.kill('SIGCONT');
        assert.equal((await lines.next()).value, 'lost');
      }
      child.kill('SIGKILL');
      await (await acquiring).release();
    }
  });
}, { concurrency: 5 });
