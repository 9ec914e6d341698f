/** The two clients on the server of DLOCK_TEST_HOST and DLOCK_TEST_PORT, and a wire between that can be cut. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { NoAnswer, NotGranted } from 'redis-dlock';

const host = process.env.DLOCK_TEST_HOST ?? '127.0.0.1';
const port = Number(process.env.DLOCK_TEST_PORT ?? 6379);
/** The user that the clients log in as, if that is not the default one, and the only client to be tested then. */
const { DLOCK_TEST_USER: username, DLOCK_TEST_KIND: onlyKind } = process.env;
const login = username && { username, password: 'secret' };
/** How long anything may take on a busy machine. */
const PATIENCE = 60_000;

/** The threads and processes that an operation passes through, each of which may be late. */
const HANDS = 3;

/** For how many ms some process of this machine was ready to run and had no core, so far. Without pressure files: 0. */
function waitedForACore() {
  try {
    return Number(/^some .*total=(\d+)/.exec(readFileSync('/proc/pressure/cpu', 'utf8'))[1]) / 1000;
  } catch {
    return 0;
  }
}

/** By how many ms this process was late so far. */
let late = 0;
(function measure() {
  const began = performance.now();
  setTimeout(() => {
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
      // Silence counts as a timeout, too, which would end the client for good.
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
 * Runs tests with each client, on the server of DLOCK_TEST_PORT or that of another port. They get `open(options)` for
 * clients that are closed afterwards, `run(...command)` on a connection of the test's own, `key(name)`, `close(client)`,
 * and `listen(key)` for the list of commands with that key from then on.
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
        // Files run at the same time, each in a process of its own.
        key: (name) => `${kind}:${process.pid}:${name}`,
        run: (...command) => admin.call(...command),
        async listen(key) {
          // Not with ioredis: it fails if another connection's command comes with the reply to MONITOR.
          const [monitor, heard] = [net.connect(at, host), []];
          after(() => monitor.destroy());
          const lines = createInterface({ input: monitor });
          const begins = once(lines, 'line');
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

/** Returns what INFO says of a lock, or null. */
export async function lookAt(run, key, ...options) {
  const reply = await run('DLOCK.INFO', key, ...options);
  return reply && Object.fromEntries(pairs(reply));
}

/** The clients that a list of a lock, `queue` or `holds`, names in a field: `client` or `session`. */
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

export async function until(what, condition) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    assert(Date.now() < end, `waited in vain: ${what}`);
    await sleep(5);
  }
}

/**
 * Fails unless the promise settles within `ms` milliseconds, and returns how long it took. Delays of the machine do not
 * count.
 */
export async function settles(promise, ms, what) {
  const [began, before, waited] = [performance.now(), late, waitedForACore()];
  const took = () => performance.now() - began;
  await Promise.race([promise.then(() => {}, () => {}), sleep(PATIENCE, undefined, { ref: false })]);
  const settled = took();
  await sleep(20); // by then, the last delay is known
  const stalled = HANDS * (late - before) + waitedForACore() - waited;
  assert(settled <= ms + stalled, `settled after ${settled} ms instead of ${ms}: ${what}`);
  return settled;
}

/**
 * Fails unless a server refuses the lock. On a busy machine its answer may come too late, and counts as none: then it is
 * asked again.
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

/** Waits until a signal is aborted, and returns the reason. */
export async function reasonOf(signal) {
  await until('the signal', async () => signal.aborted);
  return signal.reason;
}

/**
 * A wire to the server, or to the one at another port. `hold()` drops what the server says, `cut()` breaks connections,
 * `mend()` carries again, `lead(port)` leads elsewhere from now on. `keep(word)` keeps back a connection's commands from
 * the next one with that word on; `drop()` breaks that connection, and `deliver()` lets them arrive, before its end.
 * `delay(ms)` makes replies late, and `delayEnds(ms)` what the server hears of the end of a connection. `lose(word)` ends
 * the connection of the next command with that word in place of its reply; `lost()` counts them.
 */
export async function wire(to = port) {
  const pairs = new Set();
  let held = false;
  let replies = 0;
  let [late, lateEnd, lost] = [0, 0, 0];
  let losing = '';
  /** @type {{ word?: string, far?: net.Socket, near?: net.Socket, end?: () => void, chunks: Buffer[] }} */
  let kept = { chunks: [] };
  const relay = net.createServer((near) => {
    const far = net.connect(to, host);
    const pair = [near, far];
    let isLosing = false;
    pairs.add(pair);
    near.on('data', (data) => {
      if (kept.word && data.includes(kept.word)) {
        // The commands before it arrive.
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
      if (late > 0) setTimeout(() => near.write(data), late);
      else near.write(data);
    });
    for (const end of pair) {
      end.on('error', () => {});
      end.on('close', () => {
        if (end === near && kept.far === far) {
          kept.end = () => far.end();
          return;
        }
        if (end === near && lateEnd > 0) {
          setTimeout(() => far.destroy(), lateEnd).unref();
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
    delay: (ms) => (late = ms),
    delayEnds: (ms) => (lateEnd = ms),
    lose: (word) => (losing = word),
    lost: () => lost,
    deliver: () => {
      const { chunks, far, end } = kept;
      kept = { chunks: [] }; // from now on the connection carries again
      for (const chunk of chunks) far.write(chunk);
      end?.();
    },
  };
}

export { host, port, sleep, test };
