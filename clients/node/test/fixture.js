/**
 * Functions that the tests share: they open ioredis and node-redis on the server at DLOCK_TEST_HOST and
 * DLOCK_TEST_PORT, wait for conditions, and put a relay in front of a server that delays, loses or withholds data.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { NoAnswer, NotGranted, Session } from 'redis-dlock';

const host = process.env.DLOCK_TEST_HOST ?? '127.0.0.1';
const port = Number(process.env.DLOCK_TEST_PORT ?? 6379);
/** Set by permissions.test.js alone: the user that the clients log in as, and the only client to test. */
const { DLOCK_TEST_USER: username, DLOCK_TEST_KIND: onlyKind } = process.env;
const login = username && { username, password: 'secret' };
/** The time limit of a wait in a test, in ms: enough for a busy machine. */
const PATIENCE = 60_000;
/** The options of locks in a test that is about no time limit: a server on a busy machine answers late. */
export const PATIENT = { answer: 20_000, replicasTimeout: 20_000 };

/** How often a measured delay counts: the test, the relay and the server may each be as late. */
const HANDS = 3;

/** Returns for how many ms some process was ready to run and had no core, so far; 0 without /proc/pressure. */
function waitedForACore() {
  try {
    return Number(/^some .*total=(\d+)/.exec(readFileSync('/proc/pressure/cpu', 'utf8'))[1]) / 1000;
  } catch {
    return 0;
  }
}

/** By how many ms a timer of this process has fired late so far, added up. */
let late = 0;
(function measure() {
  const began = performance.now();
  setTimeout(() => {
    // A timer of 10 ms that fires up to 1 ms late is no delay.
    late += Math.max(0, performance.now() - began - 11);
    measure();
  }, 10).unref();
})();

const KINDS = {
  ioredis: {
    async open({ at = port, timeout, ...options } = {}) {
      const timeouts = { commandTimeout: timeout, socketTimeout: timeout };
      const client = new Redis({ host, port: at, ...login, ...timeouts, lazyConnect: true, ...options });
      client.on('error', () => {});
      await client.connect();
      return client;
    },
    close: (client) => client.disconnect(),
  },
  'node-redis': {
    async open({ at = port, timeout, ...options } = {}) {
      // The timeout of a socket also breaks a connection on which nothing is sent. Pings prevent that.
      const pingInterval = timeout && timeout / 3;
      const socket = { host, port: at, socketTimeout: timeout, reconnectStrategy: () => 20 };
      const client = createClient({ socket, ...login, pingInterval, commandOptions: { timeout }, ...options });
      client.on('error', () => {});
      return client.connect();
    },
    close: (client) => client.isOpen && client.destroy(),
  },
};

/**
 * Declares the tests of `promises` for each kind of client, on the server at the port `at`. The tests get:
 *
 * - `kind`, the name of the client's package
 * - `open(options)`: opens a client, which is closed after the tests
 * - `close(client)`
 * - `run(...command)`: sends a command on another connection, as the default user
 * - `key(name)`: a key that no other file and no other kind of client uses
 * - `listen(key)`: returns a list. The name of every later command whose first argument is this key is added to it
 */
export function withEachClient(promises, { concurrency = 1, at = port } = {}) {
  for (const [kind, { open, close }] of Object.entries(KINDS)) {
    if (onlyKind && onlyKind !== kind) continue;
    describe(kind, { concurrency }, () => {
      const opened = [];
      const admin = new Redis({ host, port: at, lazyConnect: true });
      before(() => admin.connect());
      after(() => {
        admin.disconnect();
        opened.forEach(close);
      });
      promises({
        kind,
        // The id of the process keeps apart the files, which run at the same time, each in a process.
        key: (name) => `${kind}:${process.pid}:${name}`,
        run: (...command) => admin.call(...command),
        async listen(key) {
          // A plain socket, because ioredis fails if another connection's command arrives with the reply to MONITOR.
          const [monitor, heard] = [net.connect(at, host), []];
          after(() => monitor.destroy());
          const lines = createInterface({ input: monitor });
          const begins = once(lines, 'line');
          // MONITOR puts the words of a command into double quotes.
          lines.on('line', (line) => {
            const [command, first] = [...line.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, word]) => word);
            if (first === key) heard.push(command.toUpperCase());
          });
          monitor.write('MONITOR\r\n');
          assert.deepEqual(await begins, ['+OK']);
          return heard;
        },
        close,
        async open(options) {
          const client = await open({ at, ...options });
          opened.push(client);
          return client;
        },
      });
    });
  }
}

/** Returns the fields of DLOCK.INFO of a key, or null if the lock has no holder and no waiter. */
export async function lookAt(run, key, ...options) {
  const reply = await run('DLOCK.INFO', key, ...options);
  return reply && Object.fromEntries(pairs(reply));
}

/** Returns a field, `client` or `session`, of each entry in a list of DLOCK.INFO FULL, `queue` or `holds`. */
export async function clientsOf(run, key, list, field) {
  const info = await lookAt(run, key, 'FULL');
  return info[list].map((entry) => Object.fromEntries(pairs(entry))[field]);
}

function* pairs(flat) {
  for (let i = 0; i < flat.length; i += 2) yield [flat[i], flat[i + 1]];
}

/** Waits until the queue of a lock has this many waiters. */
export async function untilWaiting(run, key, waiters) {
  await until(`${waiters} in the queue`, async () => ((await lookAt(run, key))?.waiters ?? 0) === waiters);
}

/** Waits until the condition holds. `what` describes it in the message of a failure. */
export async function until(what, condition) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    assert(Date.now() < end, `did not happen within ${PATIENCE} ms: ${what}`);
    await sleep(5);
  }
}

/**
 * Fails unless the promise settles within `ms` milliseconds, plus the measured delays of this machine. Returns how many
 * milliseconds passed, with the delays.
 */
export async function settles(promise, ms, what) {
  const [began, before, waited] = [performance.now(), late, waitedForACore()];
  const took = () => performance.now() - began;
  await Promise.race([promise.then(() => {}, () => {}), sleep(PATIENCE, undefined, { ref: false })]);
  const settled = took();
  await sleep(20); // `measure` adds the last delay when its timer of 10 ms fires
  const stalled = HANDS * (late - before) + waitedForACore() - waited;
  assert(settled <= ms + stalled, `settled after ${settled} ms instead of ${ms}: ${what}`);
  return settled;
}

/**
 * Fails unless `acquire` throws `NotGranted`. On a busy machine an answer may come too late, and `acquire` throws
 * `NoAnswer`: then `acquire` is called again.
 */
export async function refused(acquire) {
  for (const end = Date.now() + PATIENCE; ; ) {
    try {
      await acquire();
      break;
    } catch (error) {
      if (error instanceof NotGranted) return;
      if (!(error instanceof NoAnswer) || Date.now() > end) throw error;
    }
  }
  assert.fail('the lock was granted');
}

/** Opens a session. On a busy machine, the answer may come after the limit of `open`: then it is called again. */
export async function openSession(client, options) {
  const session = new Session(client, options);
  for (const end = Date.now() + PATIENCE; ; ) {
    try {
      return await session.open();
    } catch (error) {
      if (!(error instanceof NoAnswer) || Date.now() > end) throw error;
    }
  }
}

/** Waits until a signal is aborted, and returns the reason. */
export async function reasonOf(signal) {
  await until('the signal is aborted', async () => signal.aborted);
  return signal.reason;
}

/**
 * Starts a relay in front of the server at the port `to`. Clients connect to its `port`.
 *
 * - `replies()`: how many chunks of data the server has sent
 * - `hold()`: drops what the server sends, until `mend()`
 * - `cut()`: breaks all connections
 * - `lead(port)`: new connections lead to the server at this port
 * - `keep(word)`: withholds the next command with this word, and what its client sends after it on that connection
 * - `kept()`: how many chunks of data are withheld
 * - `drop()`: breaks the withholding connection on the client's side; the server does not notice before `deliver()`
 * - `deliver()`: sends what is withheld to the server, and then the end of the connection if that has ended
 * - `delay(ms)`: later replies arrive late by this time
 * - `delayEnds(ms)`: the server notices the end of a client's connection late by this time
 * - `lose(word)`: breaks the connection of the next command with this word when its reply comes, and drops the reply
 * - `lost()`: how many replies were dropped by `lose`
 */
export async function wire(to = port) {
  const pairs = new Set();
  let held = false;
  let replies = 0;
  let [replyDelay, endDelay, lost] = [0, 0, 0];
  let losing = '';
  /**
   * The chunks that `keep` withholds, and their connection. `end` ends the server's side of the connection.
   *
   * @type {{ word?: string, far?: net.Socket, near?: net.Socket, end?: () => void, chunks: Buffer[] }}
   */
  let kept = { chunks: [] };
  const relay = net.createServer((near) => {
    const far = net.connect(to, host);
    const pair = [near, far];
    let isLosing = false;
    pairs.add(pair);
    near.on('data', (data) => {
      if (kept.word && data.includes(kept.word)) {
        // The commands ahead of the one with the word pass. A command is an array in RESP, which begins with `*`.
        const at = data.lastIndexOf('*', data.indexOf(kept.word));
        far.write(data.subarray(0, at));
        data = data.subarray(at);
        [kept.word, kept.far, kept.near] = [undefined, far, near];
      }
      if (losing && data.includes(losing)) [losing, isLosing] = ['', true];
      if (kept.far === far) kept.chunks.push(data);
      else far.write(data);
    });
    far.on('data', (data) => {
      replies += 1;
      if (held) return;
      if (isLosing) {
        lost += 1;
        near.destroy();
        return;
      }
      if (replyDelay > 0) setTimeout(() => near.write(data), replyDelay);
      else near.write(data);
    });
    for (const end of pair) {
      end.on('error', () => {});
      end.on('close', () => {
        if (end === near && kept.far === far) {
          kept.end = () => far.end();
          return;
        }
        if (end === near && endDelay > 0) {
          setTimeout(() => far.destroy(), endDelay).unref();
          return;
        }
        pair.forEach((each) => each.destroy());
        pairs.delete(pair);
      });
    }
  });
  await new Promise((resolve) => relay.listen(0, '127.0.0.1', resolve));
  after(() => {
    relay.close();
    pairs.forEach((pair) => pair.forEach((end) => end.destroy()));
  });
  return {
    port: relay.address().port,
    replies: () => replies,
    hold: () => (held = true),
    mend: () => (held = false),
    lead: (port) => (to = port),
    cut: () => pairs.forEach((pair) => pair.forEach((end) => end.destroy())),
    keep: (word) => (kept = { word, chunks: [] }),
    kept: () => kept.chunks.length,
    drop: () => kept.near.destroy(),
    delay: (ms) => (replyDelay = ms),
    delayEnds: (ms) => (endDelay = ms),
    lose: (word) => (losing = word),
    lost: () => lost,
    deliver: () => {
      const { chunks, far, end } = kept;
      kept = { chunks: [] }; // later commands on the connection pass
      for (const chunk of chunks) far.write(chunk);
      end?.();
    },
  };
}

export { host, port, sleep, test };
