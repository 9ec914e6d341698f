'use strict';
/** Observers of a lock, and leader election. */

const { LockLost, explained, isMoving, mayRepeat } = require('./errors.js');
const { timer, unlessAborted } = require('./time.js');

/**
 * @typedef {import('./connection.js').Client} Client
 * @typedef {import('./connection.js').Connection} Connection
 * @typedef {import('./index.js').Holder} Holder
 * @typedef {import('./index.js').ElectionOptions} ElectionOptions
 */

/** A watch asks at least this often, in milliseconds, so that it notices a connection that is dead. */
const HEARTBEAT = 10_000;
/** How long a reply may take, and the longest pause between two attempts to reach the server. */
const ANSWER = 5000;
const LONGEST_PAUSE = 1000;

/**
 * @param {Client} client
 * @param {string} key
 * @returns {Promise<Holder | null>}
 */
async function holder(client, key) {
  try {
    return read(await client.send(question(key), key)).found;
  } catch (error) {
    throw explained(error);
  }
}

/**
 * @param {Client} client
 * @param {string} key
 * @param {AbortSignal | undefined} signal
 * @returns {AsyncGenerator<Holder | null, void, void>}
 */
async function* watch(client, key, signal) {
  /** @type {number | null | undefined} the token that was reported last; null: free */
  let known;
  let pause = 0;
  const aborted = new Promise((resolve) => signal?.addEventListener('abort', resolve, { once: true }));
  while (!signal?.aborted) {
    /** @type {Connection[]} */
    const opened = [];
    try {
      let changed = () => {};
      const listening = await client.connect(key, () => changed());
      opened.push(listening);
      const number = await answer(listening.send(['CLIENT', 'ID']));
      await answer(listening.subscribe('__redis__:invalidate'));
      const asking = await client.connect(key, () => {});
      opened.push(asking);
      await answer(asking.send(['CLIENT', 'TRACKING', 'ON', 'REDIRECT', String(number)]));
      while (!signal?.aborted) {
        const change = new Promise((resolve) => (changed = () => resolve(undefined)));
        const { found, left } = read(await answer(asking.send(question(key))));
        pause = 0;
        if (known !== (found?.token ?? null)) {
          known = found?.token ?? null;
          yield found;
          continue;
        }
        /** @type {NodeJS.Timeout | undefined} */
        let late;
        const until = new Promise((resolve) => (late = setTimeout(resolve, left)));
        await Promise.race([change, until, aborted, ...opened.map(({ closed }) => closed)]);
        clearTimeout(late);
      }
    } catch (error) {
      if (!isMoving(error) && !mayRepeat(error)) throw explained(error);
      if (isMoving(error)) await client.find(key).catch(() => {});
    } finally {
      opened.forEach((connection) => connection.close());
    }
    await Promise.race([aborted, new Promise((resolve) => timer(() => resolve(undefined), pause).ref())]);
    pause = Math.min(Math.max(2 * pause, 50), LONGEST_PAUSE);
  }
}

/**
 * @param {import('./index.js').DLock} dlock
 * @param {string} resource
 * @param {ElectionOptions} options
 */
async function elect(dlock, resource, { onStarted, onStopped, signal, ...options }) {
  while (!signal?.aborted) {
    let lock;
    try {
      lock = await dlock.acquire(resource, { ...options, wait: Infinity, ...(signal && { signal }) });
    } catch (error) {
      if (signal?.aborted) return;
      if (!mayRepeat(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, LONGEST_PAUSE));
      continue;
    }
    await lead(/** @type {import('./lock.js').Lock} */ (lock), onStarted, onStopped, signal);
  }
}

/**
 * @param {import('./lock.js').Lock} lock
 * @param {ElectionOptions['onStarted']} onStarted
 * @param {ElectionOptions['onStopped']} onStopped
 * @param {AbortSignal | undefined} signal
 */
async function lead(lock, onStarted, onStopped, signal) {
  const ended = signal ? AbortSignal.any([lock.signal, signal]) : lock.signal;
  const end = new Promise((resolve) => ended.addEventListener('abort', resolve, { once: true }));
  lock.keep();
  try {
    if (!ended.aborted) await onStarted(ended, lock);
    if (!ended.aborted) await end;
  } catch (error) {
    // Work that was ended rejects with the reason.
    if (!ended.aborted || error !== ended.reason && !(error instanceof LockLost)) throw error;
  } finally {
    try {
      await onStopped?.(lock);
    } finally {
      await lock.release().catch(() => {}); // then the lease ends it
    }
  }
}

/** @param {string} key */
function question(key) {
  return ['DLOCK.INFO', key, 'FULL', 'COUNT', '1'];
}

/**
 * @param {unknown} reply
 * @returns {{ found: Holder | null, left: number }}
 */
function read(reply) {
  const info = fieldsOf(reply);
  const [first] = /** @type {unknown[]} */ (info.get('holds') ?? []);
  if (first === undefined) return { found: null, left: HEARTBEAT };
  const hold = fieldsOf(first);
  const token = Number(hold.get('token'));
  const found = { token, owner: String(hold.get('owner')), since: new Date(Math.floor(token / 1000)) };
  return { found, left: Math.min(HEARTBEAT, Number(info.get('ttl')) + 1) };
}

/**
 * A map, which version 2 of the protocol sends as a flat array.
 *
 * @param {unknown} reply
 * @returns {Map<string, unknown>}
 */
function fieldsOf(reply) {
  if (reply instanceof Map) return new Map([...reply].map(([name, value]) => [String(name), value]));
  if (!Array.isArray(reply)) return new Map(Object.entries(reply ?? {}));
  return new Map(reply.flatMap((name, at) => (at % 2 === 0 ? [[String(name), reply[at + 1]]] : [])));
}

/**
 * @template T
 * @param {Promise<T>} reply
 */
async function answer(reply) {
  return unlessAborted(reply, AbortSignal.timeout(ANSWER));
}

module.exports = { elect, holder, watch };
