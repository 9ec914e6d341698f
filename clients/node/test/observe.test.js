import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';

import { DLock } from 'redis-dlock';

import { PATIENT, until as soon, untilWaiting, wire, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** A server for this file alone, because a test flushes it; undefined if permissions.test.js has started one. */
const server = process.env.DLOCK_TEST_USER ? undefined : await start();

withEachClient(({ open, run, key }) => {
  test('an observer sees each change of the holder: a grant, a release, a lapse, a flush', async () => {
    const [name, seen, stop] = [key('watched'), [], new AbortController()];
    const owners = () => seen.map((holder) => holder?.owner ?? null);
    const dlock = new DLock(await open(), PATIENT);
    const watching = (async () => {
      for await (const holder of dlock.watch(name, { signal: stop.signal })) seen.push(holder);
    })();
    await soon('the lock is seen free', () => seen.length === 1);
    const token = await run('DLOCK.ACQUIRE', name, 'a', 'PX', 60_000);
    await soon('a is seen', () => seen.length === 2);
    assert.equal(seen[1].token, token);
    assert.ok(Math.abs(seen[1].since - Date.now()) < 60_000);
    assert.deepEqual(await dlock.holder(name), seen[1]);
    await run('DLOCK.RELEASE', name, 'a');
    await soon('the release is seen', () => seen.length === 3);
    await run('DLOCK.ACQUIRE', name, 'b', 'PX', 5000);
    await soon('b and the lapse of its lease are seen', () => seen.length === 5);
    await run('DLOCK.ACQUIRE', name, 'c', 'PX', 60_000);
    await soon('c is seen', () => seen.length === 6);
    await run('FLUSHDB');
    await soon('the flush is seen', () => seen.length === 7);
    assert.deepEqual(owners(), [null, 'a', null, 'b', null, 'c', null]);
    assert.equal(await dlock.holder(name), null);
    stop.abort();
    await watching;
  });

  test('an observer goes on when its connection for changes is killed', async () => {
    const [name, seen, stop] = [key('cut'), [], new AbortController()];
    const dlock = new DLock(await open(), PATIENT);
    const watching = (async () => {
      for await (const holder of dlock.watch(name, { signal: stop.signal })) seen.push(holder?.owner ?? null);
    })();
    await soon('the lock is seen free', () => seen.length === 1);
    await run('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await run('DLOCK.ACQUIRE', name, 'a', 'PX', 60_000);
    await soon('a is seen', () => seen.length === 2);
    await run('DLOCK.RELEASE', name, 'a');
    await soon('the release is seen', () => seen.length === 3);
    assert.deepEqual(seen, [null, 'a', null]);
    stop.abort();
    await watching;
  });

  test('an observer goes on when its connection for changes is killed before the other one can name it', async () => {
    const [name, seen, stop] = [key('half'), [], new AbortController()];
    const line = await wire(server?.port);
    const dlock = new DLock(await open({ at: line.port }), PATIENT);
    line.keep('TRACKING');
    const watching = (async () => {
      for await (const holder of dlock.watch(name, { signal: stop.signal })) seen.push(holder?.owner ?? null);
    })();
    await soon('the command is kept back', () => line.kept() > 0);
    await run('CLIENT', 'KILL', 'TYPE', 'pubsub');
    line.deliver();
    await soon('the lock is seen free', () => seen.length === 1);
    stop.abort();
    await watching;
  });

  test('another program leads when the lock is lost, and each term that begins ends', async () => {
    const [name, events, tokens, leaders] = [key('leader'), [], [], []];
    const programs = await Promise.all([0, 1].map(async (number) => {
      const stop = new AbortController();
      const dlock = new DLock(await open(), PATIENT);
      const done = dlock.elect(name, {
        lease: 12_000,
        signal: stop.signal,
        onStarted(signal, lock) {
          events.push('started');
          tokens.push(lock.token);
          leaders.push(number);
        },
        onStopped: () => events.push('stopped'),
      });
      return { stop, done, dlock };
    }));
    await soon('a program leads', () => events.length === 1);
    await untilWaiting(run, name, 1);
    assert.equal((await programs[0].dlock.holder(name)).token, tokens[0]);
    await run('DEL', name);
    await soon('one term has ended and another has begun', () => events.length === 3);
    assert.equal(events.filter((event) => event === 'stopped').length, 1);
    assert.equal(leaders[1], 1 - leaders[0]);
    assert.equal((await programs[0].dlock.holder(name)).token, tokens[1]);
    programs.forEach(({ stop }) => stop.abort());
    await Promise.all(programs.map(({ done }) => done));
    assert.equal(events.filter((event) => event === 'started').length, tokens.length);
    assert.equal(events.filter((event) => event === 'stopped').length, tokens.length);
    assert.ok(tokens[1] > tokens[0]);
    assert.equal(await programs[0].dlock.holder(name), null);
  });

  test('an election waits again after CLIENT UNBLOCK has ended its wait', async () => {
    const [name, stop, terms] = [key('unblocked'), new AbortController(), []];
    await run('DLOCK.ACQUIRE', name, 'other', 'PX', '60000');
    const dlock = new DLock(await open(), PATIENT);
    const done = dlock.elect(name, { signal: stop.signal, onStarted: (_, lock) => terms.push(lock.token) });
    await untilWaiting(run, name, 1);
    const lines = (await run('CLIENT', 'LIST')).split('\n');
    const line = lines.find((each) => / flags=\w*b/.test(each) && each.includes('dlock.acquire'));
    assert.equal(await run('CLIENT', 'UNBLOCK', /id=(\d+)/.exec(line)[1]), 1);
    await Promise.race([done, untilWaiting(run, name, 1)]);
    await run('DLOCK.RELEASE', name, 'other');
    await Promise.race([done, soon('the program leads', () => terms.length === 1)]);
    stop.abort();
    await done;
    assert.equal(terms.length, 1);
  });

  const { signal: never } = new AbortController();
  /** Work that ends when its signal is aborted, and how: by functions of Node.js, by asking the signal, by an error. */
  const WORK = {
    'timers/promises': (signal) => pause(600_000, undefined, { signal }),
    'events.once': (signal) => once(new EventEmitter(), 'never', { signal }),
    throwIfAborted: (signal) => pause(50).then(() => signal.throwIfAborted()).then(() => WORK.throwIfAborted(signal)),
    'an error with the cause': (signal) => pause(600_000, undefined, { signal }).catch((cause) => {
      throw new Error('the work was ended', { cause });
    }),
  };
  for (const [what, work] of Object.entries(WORK)) {
    test(`work that ends with its signal ends the term, not the election: ${what}`, async () => {
      const [name, stop, terms] = [key(`work ${what}`), new AbortController(), []];
      const dlock = new DLock(await open(), PATIENT);
      const done = dlock.elect(name, {
        lease: 12_000,
        signal: stop.signal,
        onStarted(signal, lock) {
          terms.push(lock.token);
          return work(signal);
        },
      });
      done.catch(() => {});
      await soon('the program leads', () => terms.length === 1);
      await run('DEL', name);
      await Promise.race([done, soon('the program leads again', () => terms.length === 2)]);
      stop.abort();
      await done;
      assert.equal(await dlock.holder(name), null);
    });
  }

  test('an election that is stopped before its term begins calls neither onStarted nor onStopped', async () => {
    const stop = new AbortController();
    const told = [];
    const own = new DLock(await open(), PATIENT);
    const acquire = own.acquire.bind(own);
    own.acquire = async (...words) => {
      const lock = await acquire(...words);
      stop.abort(); // after the grant, before the election knows of it
      return lock;
    };
    const name = key('unbegun');
    await own.elect(name, {
      signal: stop.signal,
      onStarted: () => told.push('started'),
      onStopped: () => told.push('stopped'),
    });
    assert.deepEqual(told, []);
    assert.equal(await own.holder(name), null);
  });

  test('work that fails by itself ends the election, whatever onStopped does', async () => {
    const dlock = new DLock(await open(), PATIENT);
    const failed = new Error('no disk');
    const options = {
      signal: never,
      onStarted: () => Promise.reject(failed),
      onStopped: () => Promise.reject(new Error('this one, too')),
    };
    await assert.rejects(dlock.elect(key('fails'), options), failed);
    assert.equal(await dlock.holder(key('fails')), null);
  });
}, { at: server?.port });
