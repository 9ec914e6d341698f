'use strict';
/** Observers of a lock, and leader election. */

const { ask } = require('./wire/ask.js');
const { Tries } = require('./wire/tries.js');
const { LockLost, NoAnswer, NotGranted, TooFewReplicas, explained, mayRepeat } = require('./errors.js');
const { fieldsOf } = require('./info.js');
const { Bound, follow, pause, unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./wire/clients.js').Client} Client
 * @typedef {import('./wire/connection.js').Connection} Connection
 * @typedef {import('./index.js').Holder} Holder
 * @typedef {import('./index.js').ElectionOptions} ElectionOptions
 */

/** A watch asks at least this often, in milliseconds, so that it notices a connection that is dead. */
const HEARTBEAT = 10_000;
/** How long a reply may take, in ms. */
const ANSWER = 5000;
/** The pause after a connection broke, in ms. */
const PAUSE = 50;
/** The pause after an acquisition of an election failed, in ms. */
const BETWEEN_ELECTIONS = 1000;
/** The error of CLIENT TRACKING if the listening connection, to which it redirects, has ended before. */
const CUT = /client ID you want redirect to does not exist/;

/**
 * @param {Client} client
 * @param {string} key
 * @param {number} ms how long the answer may take
 * @returns {Promise<Holder | null>}
 */
async function holder(client, key, ms) {
  const noAnswer = (/** @type {unknown} */ cause) => new NoAnswer(key, cause);
  const { replies } = await within({ ms }, undefined, noAnswer, (bound) => ask(client, [question(key)], bound));
  return read(replies[0]).found;
}

/**
 * @param {Client} client
 * @param {string} key
 * @param {AbortSignal | undefined} signal
 * @returns {AsyncGenerator<Holder | null, void, void>}
 */
async function* watch(client, key, signal) {
  /** @type {number | null | undefined} the token that was yielded last; null: the lock was free; undefined: none yet */
  let known;
  for (let isFirst = true; !signal?.aborted; isFirst = false) {
    const bound = new Bound({}, signal, () => new Error('ended'));
    const tries = new Tries(client, key, bound);
    tries.isSuspect = !isFirst;
    try {
      for await (const found of changes(tries, key, bound)) {
        if (known === (found?.token ?? null)) continue;
        known = found?.token ?? null;
        yield found;
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (!mayRepeat(error) && !(error instanceof Error && CUT.test(error.message))) throw explained(error);
    } finally {
      tries.end();
      bound.close();
    }
    await pause(PAUSE, signal).catch(() => {});
  }
}

/**
 * Yields the holder at once, and again after each change of the key, until a connection breaks. The server sends the
 * changes to one connection, and answers questions on the other.
 *
 * @param {import('./wire/tries.js').Tries} tries
 * @param {string} key
 * @param {import('./time.js').Bound} bound
 * @returns {AsyncGenerator<Holder | null, void, void>}
 */
async function* changes(tries, key, bound) {
  let [isBroken, wake] = [false, () => {}];
  const connect = () => tries.run(async (connection) => connection, () => wake());
  const [listening, asking] = [await connect(), await connect()];
  const broken = () => {
    isBroken = true;
    wake();
  };
  for (const { closed } of [listening, asking]) closed.then(broken);
  const [number] = await answer(listening, [['CLIENT', 'ID']], bound);
  await within({ ms: ANSWER }, bound.signal, late, ({ signal }) => listening.subscribe('__redis__:invalidate', signal));
  await answer(asking, [['CLIENT', 'TRACKING', 'ON', 'REDIRECT', String(number)]], bound);
  while (!isBroken) {
    // Made before the question, so that a change during the question is not missed.
    const change = new Promise((resolve) => (wake = () => resolve(undefined)));
    const [reply] = await answer(asking, [question(key)], bound);
    const { found, left } = read(reply);
    yield found;
    const timeout = setTimeout(wake, left);
    await unlessAborted(change, bound.signal).finally(() => clearTimeout(timeout));
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
      // NotGranted: an operator has ended the wait (CLIENT UNBLOCK), since its time is unlimited.
      const isForNow = error instanceof NoAnswer || error instanceof NotGranted || error instanceof TooFewReplicas;
      if (!isForNow) throw error;
      await pause(BETWEEN_ELECTIONS, signal).catch(() => {});
      continue;
    }
    await lead(/** @type {import('./hold.js').Lock} */ (lock), onStarted, onStopped, signal);
  }
}

/**
 * @param {import('./hold.js').Lock} lock
 * @param {ElectionOptions['onStarted']} onStarted
 * @param {ElectionOptions['onStopped']} onStopped
 * @param {AbortSignal | undefined} signal
 */
async function lead(lock, onStarted, onStopped, signal) {
  const ended = signal ? AbortSignal.any([lock.signal, signal]) : lock.signal;
  // A lock whose release fails ends with its lease.
  const leave = () => lock.release().catch(() => {});
  if (ended.aborted) return leave();
  const end = new Promise((resolve) => follow(ended, () => resolve(undefined)));
  lock.keep();
  /** @type {{ error: unknown }[]} */
  const failures = [];
  try {
    await onStarted(ended, lock);
    if (!ended.aborted) await end;
  } catch (error) {
    if (!isEndOf(ended, error)) failures.push({ error });
  }
  try {
    await onStopped?.(lock);
  } catch (error) {
    failures.push({ error });
  }
  await leave();
  if (failures[0]) throw failures[0].error;
}

/**
 * Whether work failed because its signal was aborted: with the reason of the signal, or with an `AbortError`, as the
 * functions of Node.js do. The search follows eight causes at most: a chain of causes may be a cycle.
 *
 * @param {AbortSignal} ended
 * @param {unknown} error
 */
function isEndOf(ended, error) {
  if (!ended.aborted) return false;
  for (let each = error, depth = 0; each instanceof Error && depth < 8; each = each.cause, depth += 1) {
    if (each === ended.reason || each instanceof LockLost || each.name === 'AbortError') return true;
  }
  return error === ended.reason;
}

/** @param {string} key */
function question(key) {
  return ['DLOCK.INFO', key, 'FULL', 'COUNT', '1'];
}

/**
 * @param {unknown} reply
 * @returns {{ found: Holder | null, left: number }} `left`: the ms until the next question, because no message tells of
 *   a lease that ended
 */
function read(reply) {
  const info = fieldsOf(reply);
  const [first] = /** @type {unknown[]} */ (info.get('holds') ?? []);
  if (first === undefined) return { found: null, left: HEARTBEAT };
  const hold = fieldsOf(first);
  const token = Number(hold.get('token'));
  // A token is the time of the grant in µs.
  const found = { token, owner: String(hold.get('owner')), since: new Date(Math.floor(token / 1000)) };
  return { found, left: Math.min(HEARTBEAT, Number(info.get('ttl')) + 1) };
}

/**
 * @param {import('./wire/connection.js').Connection} connection
 * @param {string[][]} commands
 * @param {import('./time.js').Bound} bound
 */
async function answer(connection, commands, bound) {
  return within({ ms: ANSWER }, bound.signal, late, ({ signal }) => connection.exchange(commands, signal));
}

function late() {
  return new Error('the server did not answer in time');
}

module.exports = { elect, holder, watch };
